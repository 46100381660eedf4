//! The state directory: damaged, foreign, taken.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use vitals_tests::backend::Backend;
use vitals_tests::lab::Scene;
use vitals_tests::process::{run, text};
use vitals_tests::vitals::{Vitals, endpoint_name, serve};
use vitals_tests::wait::SOON;

/// A server that has judged one endpoint and stored it, stopped; and the file it stored it in.
fn stopped(scene: &Scene) -> (Vitals, PathBuf, Vec<Backend>) {
    let backends = scene.backends(1);
    let mut vitals = scene.vitals(&scene.shop(&backends));
    vitals.wait_for_status(backends[0].name(), "HEALTHY");
    vitals.terminate(SOON);
    let file = files(vitals.state())
        .into_iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .expect("there is a file in the state directory");
    (vitals, file, backends)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect()
}

/// Damages the stored state, and sees that the server sets it aside, says so, and starts.
fn set_aside(damage: impl FnOnce(&Path) -> Vec<u8>) {
    let scene = Scene::new();
    let (mut vitals, file, backends) = stopped(&scene);
    let damaged = damage(&file);
    fs::write(&file, &damaged).unwrap();
    vitals.start_again();
    vitals.wait_for_status(backends[0].name(), "HEALTHY");
    let kept = files(vitals.state())
        .iter()
        .any(|path| *path != file && fs::read(path).is_ok_and(|bytes| bytes == damaged));
    assert!(
        kept,
        "the damaged file is kept for whoever wants to know: {:?}",
        files(vitals.state())
    );
    assert!(vitals.log().contains("set aside"), "the log says so");
    // What is stored from now on can be read again.
    vitals.terminate(SOON);
    let said = vitals.log().matches("set aside").count();
    vitals.start_again();
    assert_eq!(vitals.log().matches("set aside").count(), said);
}

#[test]
fn garbage_is_set_aside() {
    set_aside(|file| {
        let mut bytes = fs::read(file).unwrap();
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(n * 31 % 251).unwrap();
        }
        bytes
    });
}

#[test]
fn a_truncated_file_is_set_aside() {
    set_aside(|file| {
        let bytes = fs::read(file).unwrap();
        bytes[..bytes.len() / 2].to_vec()
    });
}

#[test]
fn an_empty_header_is_set_aside() {
    set_aside(|file| {
        let mut bytes = fs::read(file).unwrap();
        let header = bytes.len().min(512);
        bytes[..header].fill(0);
        bytes
    });
}

#[test]
fn a_text_file_is_set_aside() {
    set_aside(|_| b"this is somebody's shopping list\n".to_vec());
}

#[test]
fn a_database_of_another_program_is_set_aside() {
    set_aside(|_| {
        let mut bytes = b"SQLite format 3\0".to_vec();
        bytes.resize(8192, 0);
        bytes
    });
}

fn second(scene: &Scene, state: &Path, xds: u16, admin: u16) -> Output {
    let at = |port| SocketAddr::new(scene.net().host(1).into(), port);
    run(&mut serve(&scene.config_path(), state, at(xds), at(admin)))
}

#[test]
fn a_second_server_on_the_same_state_is_refused_with_69() {
    let scene = Scene::new();
    let vitals = scene.vitals(&scene.shop(&scene.backends(1)));
    let output = second(&scene, vitals.state(), 21_810, 21_811);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
    let state = vitals.state().display().to_string();
    assert!(text(&output).contains(&state), "{}", text(&output));
    assert!(vitals.get("/healthz").is_ok(), "the first one goes on");
}

#[test]
fn a_port_in_use_is_refused_with_69() {
    let scene = Scene::new();
    let vitals = scene.vitals(&scene.shop(&scene.backends(1)));
    let state = scene.dir().join("other");
    for (xds, admin, taken) in [
        (vitals.xds().port(), 21_811, vitals.xds().port()),
        (21_810, 21_801, 21_801),
    ] {
        let output = second(&scene, &state, xds, admin);
        assert_eq!(output.status.code(), Some(69), "{}", text(&output));
        let port = taken.to_string();
        assert!(text(&output).contains(&port), "{}", text(&output));
    }
}

#[test]
fn a_state_directory_that_cannot_be_made_is_refused_with_69() {
    let scene = Scene::new();
    scene.shop(&scene.backends(1)).save(&scene.config_path());
    let file = scene.dir().join("file");
    fs::write(&file, "not a folder").unwrap();
    let output = second(&scene, &file.join("state"), 21_810, 21_811);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
}

/// A file may grow to nothing, as on a disk that is full.
#[test]
fn a_full_disk_is_refused_with_69_and_leaves_nothing_that_is_called_damaged() {
    let scene = Scene::new();
    scene.shop(&scene.backends(1)).save(&scene.config_path());
    let state = scene.dir().join("state");
    let at = |port| SocketAddr::new(scene.net().host(1).into(), port);
    let plain = serve(&scene.config_path(), &state, at(21_810), at(21_811));
    let mut command = std::process::Command::new("bash");
    // What is over the limit fails, where it would end the process with a signal. What the server says goes through a pipe,
    // because the harness keeps it in a file.
    let limited = "set -o pipefail; trap '' XFSZ; { ulimit -f 0; \"$@\"; } 2>&1 | cat";
    command.args(["-c", limited, "bash"]);
    command.arg(plain.get_program()).args(plain.get_args());
    let output = run(&mut command);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.contains(&state.display().to_string()) && said.contains("free space there"),
        "{said}"
    );
    assert_eq!(files(&state), [""; 0].map(PathBuf::from), "{said}");
}

#[test]
fn sigterm_stores_the_state_of_a_server_that_just_learned_it() {
    let scene = Scene::new();
    let backends = scene.backends(1);
    let mut vitals = scene.vitals(&scene.shop(&backends));
    let before = vitals.wait_for_status(backends[0].name(), "HEALTHY");
    let status = vitals.terminate(SOON);
    assert_eq!(status.code(), Some(0));
    drop(backends);
    vitals.start_again();
    let name = endpoint_name(&before);
    let after = vitals.endpoint(&name).unwrap();
    assert_eq!(after["status"], "HEALTHY", "{after}");
    assert_eq!(after["since"], before["since"], "{after}");
    // And the truth of now is found.
    vitals.wait_for_status(&name, "TIMEOUT");
}
