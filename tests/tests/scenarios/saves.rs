//! The ways in which a configuration file changes on disk.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use vitals_tests::backend::Backend;
use vitals_tests::config::Config;
use vitals_tests::envoy::HEALTHY;
use vitals_tests::lab::{Lab, Scene};
use vitals_tests::vitals::Vitals;
use vitals_tests::wait::{SOON, eventually};
use vitals_tests::{Transport, on_every_transport};

on_every_transport!(an_editors_save_reaches_envoy);

fn an_editors_save_reaches_envoy(transport: Transport) {
    let mut lab = Lab::start(transport, 1);
    // Two times: after a rename another inode is to be watched.
    for host in [21, 22] {
        let new = lab.scene.backend(host);
        lab.config.add_endpoint(new.address());
        let path = lab.scene.config_path();
        // As vim does: the old file becomes a backup, a new one takes its name, the backup goes.
        let backup = path.with_extension("yaml~");
        fs::rename(&path, &backup).unwrap();
        fs::write(&path, lab.config.text()).unwrap();
        fs::remove_file(&backup).unwrap();
        lab.envoy.wait_for_flags(SOON, "shop", new.name(), HEALTHY);
        lab.backends.push(new);
    }
}

/// A server without Envoys whose configuration is at `path`, and its two backends, of which only the first is configured.
fn start(scene: &Scene, path: &Path, write: impl Fn(&Config)) -> (Vitals, Config, Vec<Backend>) {
    let backends = scene.backends(3);
    let config = scene.shop(&backends[..1]);
    write(&config);
    let vitals = Vitals::start(scene.net(), path, scene.dir());
    vitals.wait_for_status(backends[0].name(), "HEALTHY");
    (vitals, config, backends)
}

/// Adds the other backends one by one with `write`, and sees each picked up.
fn picks_up(scene: &Scene, path: &Path, write: impl Fn(&Config)) {
    let (vitals, mut config, backends) = start(scene, path, &write);
    for backend in &backends[1..] {
        config.add_endpoint(backend.address());
        write(&config);
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
}

#[test]
fn a_new_file_renamed_over_the_old_is_picked_up() {
    let scene = Scene::new();
    let path = scene.config_path();
    picks_up(&scene, &path, |config| config.save(&path));
}

#[test]
fn a_file_rewritten_in_place_is_picked_up() {
    let scene = Scene::new();
    let path = scene.config_path();
    picks_up(&scene, &path, |config| {
        fs::write(&path, config.text()).unwrap();
    });
}

#[test]
fn a_kubernetes_volume_swap_is_picked_up() {
    // vitals.yaml → ..data/vitals.yaml, ..data → a folder per version; only `..data` is ever replaced.
    let scene = Scene::new();
    let volume = scene.dir().join("volume");
    fs::create_dir(&volume).unwrap();
    let path = volume.join("vitals.yaml");
    let version = std::sync::atomic::AtomicU32::new(0);
    picks_up(&scene, &path, |config| {
        let n = version.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = format!("..version_{n}");
        fs::create_dir(volume.join(&folder)).unwrap();
        fs::write(volume.join(&folder).join("vitals.yaml"), config.text()).unwrap();
        let (new, data) = (volume.join("..data_tmp"), volume.join("..data"));
        symlink(&folder, &new).unwrap();
        fs::rename(&new, &data).unwrap();
        if n == 0 {
            symlink("..data/vitals.yaml", &path).unwrap();
        } else {
            fs::remove_dir_all(volume.join(format!("..version_{}", n - 1))).unwrap();
        }
    });
}

#[test]
fn a_folder_of_files_is_one_configuration() {
    let scene = Scene::new();
    let folder = scene.dir().join("config.d");
    fs::create_dir(&folder).unwrap();
    let backends = scene.backends(3);
    let config = scene.shop(&backends[..2]);
    let split = |groups: &Config| {
        let only = |groups: &Config, keep: &dyn Fn(&str) -> bool| {
            let mut part = groups.clone();
            part.0.as_object_mut().unwrap().retain(|key, _| keep(key));
            part
        };
        let is_group = |key: &str| key == "endpointGroups";
        (only(groups, &is_group), only(groups, &|key| !is_group(key)))
    };
    let (groups, rest) = split(&config);
    groups.save(&folder.join("groups.yaml"));
    rest.save(&folder.join("rest.yaml"));
    // Not *.yaml: not read.
    fs::write(folder.join("notes.txt"), "not: [yaml").unwrap();
    let vitals = Vitals::start(scene.net(), &folder, scene.dir());
    for backend in &backends[..2] {
        vitals.wait_for_status(backend.name(), "HEALTHY");
    }
    // One file changes, and one comes.
    let mut changed = config;
    changed.add_endpoint(backends[2].address());
    split(&changed).0.save(&folder.join("groups.yaml"));
    vitals.wait_for_status(backends[2].name(), "HEALTHY");
    let fourth = scene.backend(21);
    let more = format!(
        "endpointGroups:\n- name: dc2\n  type: NON_GCP_PRIVATE_IP_PORT\n  endpoints:\n  - {{ address: {}, port: {} }}\n\
         backendServices:\n- name: cart\n  protocol: HTTP\n  healthCheck: web\n  backends: [{{ group: dc2 }}]\n  probing: {{ by: [PROBERS] }}\n",
        fourth.address().ip(),
        fourth.address().port()
    );
    fs::write(folder.join("more.yaml"), more).unwrap();
    vitals.wait_for_status(fourth.name(), "HEALTHY");
    fs::remove_file(folder.join("more.yaml")).unwrap();
    eventually(
        SOON,
        "what the removed file held is gone",
        || match vitals.endpoint(fourth.name()) {
            Ok(entry) => Err(entry.to_string()),
            Err(_) => Ok(()),
        },
    );
}
