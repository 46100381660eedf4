//! Traffic through a listener that the server pushed, to a cluster and endpoints that it pushed.

use vitals_tests::lab::{Lab, NODE};
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    requests_reach_every_backend_through_the_pushed_listener,
    the_admin_api_tells_what_each_client_has,
);

fn requests_reach_every_backend_through_the_pushed_listener(transport: Transport) {
    let lab = Lab::start(transport, 3);
    let reached = lab.scene.reached(60).expect("every request is answered");
    assert_eq!(reached.len(), 3, "{reached:?}");
    for backend in &lab.backends {
        assert!(backend.requests() > 0, "{backend:?}");
        let entry = lab.vitals.endpoint(backend.name()).unwrap();
        assert_eq!(entry["service"], "shop", "{entry}");
        assert_eq!(entry["group"], "dc1", "{entry}");
        assert_eq!(entry["status"], "HEALTHY", "{entry}");
        assert_eq!(entry["detailedStatus"], "HEALTHY", "{entry}");
        assert_eq!(entry["votes"].as_array().map(Vec::len), Some(1), "{entry}");
        assert_eq!(entry["votes"][0]["fresh"], true, "{entry}");
    }
}

fn the_admin_api_tells_what_each_client_has(transport: Transport) {
    let lab = Lab::start(transport, 1);
    let client = eventually(SOON, "everything that was sent is acknowledged", || {
        let client = lab.vitals.client(NODE)?;
        let types = client["types"].as_object().ok_or("no types")?;
        let all = types
            .values()
            .all(|entry| entry["sentVersion"] == entry["ackedVersion"] && entry["nack"].is_null());
        if all && !types.is_empty() {
            Ok(client)
        } else {
            Err(client.to_string())
        }
    });
    assert_eq!(client["fleet"], "edge", "{client}");
    assert_eq!(client["nodeCluster"], "edge", "{client}");
    assert_eq!(client["transport"], transport.name(), "{client}");
    for kind in ["Cluster", "ClusterLoadAssignment", "Listener"] {
        let entry = &client["types"][kind];
        assert!(entry["sentVersion"].is_string(), "{kind}: {client}");
    }
    let streams = format!("transport=\"{}\"", transport.name());
    assert_eq!(lab.vitals.metric("vitals_xds_streams", &streams), Ok(1.0));
    for kind in ["Cluster", "ClusterLoadAssignment", "Listener"] {
        let pushes = lab
            .vitals
            .metric("vitals_xds_pushes_total", &format!("type=\"{kind}\""));
        assert!(pushes.clone().unwrap() >= 1.0, "{kind}: {pushes:?}");
    }
}
