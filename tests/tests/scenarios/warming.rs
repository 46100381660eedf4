//! A route that turns to a new service whose endpoints Envoys check first (semantics H7): no request fails meanwhile.

use serde_json::json;
use vitals_tests::backend::{Backend, Mode};
use vitals_tests::lab::Lab;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(
    h7_a_route_waits_until_envoys_have_checked_the_new_service,
    h7_a_route_waits_no_longer_than_the_first_checks_take,
);

/// Turns the only route to a new service, which is checked by `by`, and waits for its first request.
fn turn_to(lab: &mut Lab, by: &[&str], endpoints: &[&Backend]) {
    let addresses: Vec<_> = endpoints.iter().map(|backend| backend.address()).collect();
    lab.config.add_group("dc2", &addresses);
    let cart = json!({
        "name": "cart", "protocol": "HTTP", "healthCheck": "web",
        "backends": [{ "group": "dc2" }], "probing": { "by": by },
    });
    lab.config.push("backendServices", cart);
    lab.config.0["fleets"][0]["listeners"][0]["routes"] = json!([{ "service": "cart" }]);
    lab.save();
    eventually(SOON, "requests reach cart", || {
        let count: u64 = endpoints.iter().map(|backend| backend.requests()).sum();
        (count > 10).then_some(()).ok_or_else(|| format!("{count}"))
    });
}

fn h7_a_route_waits_until_envoys_have_checked_the_new_service(transport: Transport) {
    let mut lab = Lab::start(transport, 1);
    let (second, third) = (lab.scene.backend(22), lab.scene.backend(23));
    let load = lab.scene.load();
    // A timeout that the wait would show, were it not ended by what Envoys say.
    lab.config.check()["checkInterval"] = json!("300s");
    lab.config.check()["timeout"] = json!("300s");
    turn_to(&mut lab, &["PROBERS", "ENVOYS"], &[&second, &third]);
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn h7_a_route_waits_no_longer_than_the_first_checks_take(transport: Transport) {
    let mut lab = Lab::start(transport, 1);
    let (second, silent) = (lab.scene.backend(22), lab.scene.backend(23));
    silent.become_(Mode::Silent);
    let load = lab.scene.load();
    lab.config.check()["checkInterval"] = json!("2s");
    lab.config.check()["timeout"] = json!("2s");
    turn_to(&mut lab, &["ENVOYS"], &[&second, &silent]);
    let failed: Vec<_> = load.samples().into_iter().filter(|s| !s.ok()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
