//! Every way in which files change, with real files. Each test waits for what must come, never for a while.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn config(service: &str) -> String {
    format!("backendServices: [{{ name: {service} }}]\n")
}

async fn next(watcher: &mut ConfigWatcher) -> Result<Vec<String>, Vec<Diagnostic>> {
    let loaded = timeout(Duration::from_secs(20), watcher.changed())
        .await
        .expect("a change must be seen")?;
    let names = loaded.model.services.keys();
    Ok(names.map(ToString::to_string).collect())
}

async fn file(content: &str) -> (TempDir, PathBuf, ConfigWatcher) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vitals.yaml");
    fs::write(&path, content).unwrap();
    let mut watcher = ConfigWatcher::new(vec![path.clone()]);
    drop(next(&mut watcher).await);
    (folder, path, watcher)
}

#[tokio::test]
async fn the_first_call_returns_what_is_there_unless_it_runs_already() {
    let (_folder, path, _) = file(&config("a")).await;
    let loaded = crate::config::load(std::slice::from_ref(&path)).unwrap();
    let mut watcher = ConfigWatcher::new(vec![path.clone()]);
    assert_eq!(next(&mut watcher).await.unwrap(), ["a"]);
    let mut watcher = ConfigWatcher::new(vec![path.clone()]).running(loaded.digest);
    fs::write(&path, config("b")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["b"]);
}

#[tokio::test]
async fn writing_in_place_is_seen() {
    let (_folder, path, mut watcher) = file(&config("a")).await;
    fs::write(&path, config("b")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["b"]);
}

#[tokio::test]
async fn an_editors_rename_over_is_seen() {
    let (folder, path, mut watcher) = file(&config("a")).await;
    for service in ["b", "c", "d"] {
        let new = folder.path().join(".vitals.yaml.swp");
        fs::write(&new, config(service)).unwrap();
        fs::rename(&new, &path).unwrap();
        assert_eq!(next(&mut watcher).await.unwrap(), [service]);
    }
}

#[tokio::test]
async fn deleting_is_reported_once_and_creating_again_is_seen() {
    let (_folder, path, mut watcher) = file(&config("a")).await;
    fs::remove_file(&path).unwrap();
    let errors = next(&mut watcher).await.unwrap_err();
    assert!(errors[0].message.contains("cannot be read"), "{errors:?}");
    fs::write(&path, config("b")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["b"]);
}

#[tokio::test]
async fn a_folder_is_seen_with_files_that_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conf.d");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a.yaml"), config("a")).unwrap();
    let mut watcher = ConfigWatcher::new(vec![path.clone()]);
    assert_eq!(next(&mut watcher).await.unwrap(), ["a"]);
    fs::write(path.join("b.yml"), config("b")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["a", "b"]);
    fs::remove_file(path.join("a.yaml")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["b"]);

    // The folder itself is replaced, and then written to: the watch must have moved to the new one.
    let new = folder.path().join("new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("c.yaml"), config("c")).unwrap();
    fs::rename(&path, folder.path().join("old")).unwrap();
    fs::rename(&new, &path).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["c"]);
    fs::write(path.join("c.yaml"), config("d")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["d"]);
}

#[tokio::test]
async fn a_configmaps_swapped_link_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let version = |name: &str, service: &str| {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("vitals.yaml"), config(service)).unwrap();
    };
    version("..1", "a");
    symlink("..1", at("..data")).unwrap();
    symlink("..data/vitals.yaml", at("vitals.yaml")).unwrap();
    let mut by_folder = ConfigWatcher::new(vec![folder.path().to_owned()]);
    let mut by_file = ConfigWatcher::new(vec![at("vitals.yaml")]);
    assert_eq!(next(&mut by_folder).await.unwrap(), ["a"]);
    assert_eq!(next(&mut by_file).await.unwrap(), ["a"]);
    for (number, service) in [("..2", "b"), ("..3", "c")] {
        version(number, service);
        symlink(number, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert_eq!(next(&mut by_folder).await.unwrap(), [service]);
        assert_eq!(next(&mut by_file).await.unwrap(), [service]);
    }
}

#[tokio::test]
async fn a_file_behind_a_link_to_elsewhere_is_seen() {
    let elsewhere = tempfile::tempdir().unwrap();
    let real = elsewhere.path().join("real.conf");
    fs::write(&real, config("a")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vitals.yaml");
    symlink(&real, &path).unwrap();
    let mut watcher = ConfigWatcher::new(vec![path]);
    assert_eq!(next(&mut watcher).await.unwrap(), ["a"]);
    fs::write(&real, config("b")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["b"]);
}

#[tokio::test]
async fn the_files_that_the_configuration_names_are_watched_too() {
    let roots = include_str!("../testdata/ca.pem");
    let elsewhere = tempfile::tempdir().unwrap();
    let pem = elsewhere.path().join("ca.pem");
    let config = format!(
        "{}healthChecks: [{{ name: c, type: SSL, tls: {{ verify: true, roots: {} }} }}]\n",
        config("a"),
        pem.display()
    );
    let (_folder, path, mut watcher) = file(&config).await;
    // The file is missing, and it comes.
    fs::write(&pem, roots).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["a"]);
    // Its content changes, in place and by a rename.
    fs::write(&pem, "rubbish").unwrap();
    let errors = next(&mut watcher).await.unwrap_err();
    assert!(errors[0].path.ends_with("tls.roots"), "{errors:?}");
    let new = elsewhere.path().join("new");
    fs::write(&new, roots).unwrap();
    fs::rename(&new, &pem).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["a"]);
    // The same again is no change.
    fs::write(&pem, roots).unwrap();
    let seen = timeout(Duration::from_millis(300), watcher.changed()).await;
    assert!(seen.is_err(), "nothing changed");
    // A watcher of what runs already knows them.
    let loaded = crate::config::load(std::slice::from_ref(&path)).unwrap();
    let mut watcher = ConfigWatcher::new(vec![path]).running(loaded.digest);
    fs::write(&pem, format!("again\n{roots}")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["a"]);
}

#[tokio::test]
async fn errors_come_once_and_the_mended_file_is_seen() {
    let (_folder, path, mut watcher) = file(&config("a")).await;
    fs::write(&path, "backendServices: [{ nam: b }]").unwrap();
    let errors = next(&mut watcher).await.unwrap_err();
    assert_eq!(errors.len(), 2, "{errors:?}");
    // An empty file is what a truncating editor leaves for a moment.
    fs::write(&path, "").unwrap();
    let errors = next(&mut watcher).await.unwrap_err();
    assert!(errors[0].message.contains("empty"), "{errors:?}");
    fs::write(&path, config("b")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["b"]);
}

#[tokio::test]
async fn touching_and_rewriting_the_same_is_no_change() {
    let (_folder, path, mut watcher) = file(&config("a")).await;
    for _ in 0..3 {
        fs::write(&path, config("a")).unwrap();
        let seen = timeout(Duration::from_millis(300), watcher.changed()).await;
        assert!(seen.is_err(), "nothing changed");
    }
    // Also the future that was dropped three times has lost nothing.
    fs::write(&path, config("b")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["b"]);
}

#[tokio::test]
async fn without_watches_the_poll_sees_a_change() {
    let (_folder, path, mut watcher) = file(&config("a")).await;
    watcher.notify = None;
    fs::write(&path, config("bb")).unwrap();
    assert_eq!(next(&mut watcher).await.unwrap(), ["bb"]);
}
