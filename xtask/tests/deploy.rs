//! The files in docs/deploy are what the programs that read them expect, and fit together. .ci/package
//! follows them on a machine. This test holds what can be told from their text.

mod support;

#[path = "support/kubernetes.rs"]
mod kubernetes;

use kubernetes::{Container, Deployment};
use std::path::Path;
use std::process::Command;
use support::{describe, has};

/// Where the Debian package has the library.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libweir.so.0";

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn deployment(text: &str) -> Result<Deployment, String> {
    serde_saphyr::from_str(text).map_err(|why| why.to_string())
}

#[test]
fn kubernetes_manifest_has_only_fields_that_exist() {
    let text = read("deploy/kubernetes.yaml");
    deployment(&text).expect("a deployment");
    for (right, wrong) in [("mountPath", "mountpath"), ("replicas: 1", "replicas: one"), ("emptyDir", "emptydir")] {
        assert!(deployment(&text.replace(right, wrong)).is_err(), "{wrong} was not noticed");
    }
}

fn mount<'a>(container: &'a Container, volume: &str) -> &'a str {
    let mut mounts = container.volume_mounts.iter();
    &mounts.find(|mount| mount.name == volume).expect("the volume is mounted").mount_path
}

#[test]
fn kubernetes_manifest_copies_the_library_to_where_it_is_loaded() {
    let spec = deployment(&read("deploy/kubernetes.yaml")).expect("a deployment").spec;
    assert_eq!(spec.selector.match_labels, spec.template.metadata.labels);
    let pod = spec.template.spec;
    let (volume, init, container) = (&pod.volumes[0], &pod.init_containers[0], &pod.containers[0]);
    assert_eq!(init.command, ["cp", LIBRARY, &format!("{}/", mount(init, &volume.name))]);
    let preload = container.env.iter().find(|variable| variable.name == "LD_PRELOAD").expect("LD_PRELOAD");
    assert_eq!(preload.value, format!("{}/libweir.so.0", mount(container, &volume.name)));
    assert!(container.resources.as_ref().expect("resources").limits.contains_key("memory"));
    // As the profile `restricted` of Kubernetes asks of every container.
    for container in [init, container] {
        let context = container.security_context.as_ref().expect("who it runs as");
        assert!(context.run_as_non_root && context.run_as_user > 0 && !context.allow_privilege_escalation);
        assert_eq!(
            (&context.capabilities.drop[..], &context.seccomp_profile.kind[..]),
            (&["ALL".to_owned()][..], "RuntimeDefault")
        );
    }
}

#[test]
fn drop_in_names_the_library() {
    let text = read("deploy/weir.conf");
    assert!(text.contains(&format!("\nEnvironment=LD_PRELOAD={LIBRARY}\n")), "{text}");
}

#[test]
#[ignore = "nightly: needs systemd-analyze"]
fn systemd_reads_the_drop_in() {
    let text = read("deploy/weir.conf");
    if !has("systemd-analyze") {
        return;
    }
    // What is offered as a comment has to be right as well.
    let all: String = text.lines().map(|line| format!("{}\n", uncommented(line))).collect();
    assert_ne!(all, text);
    assert_eq!(verify(&all), "");
    assert!(verify(&all.replace("MemoryHigh", "MemoryHihg")).contains("MemoryHihg"));
    assert!(verify(&all.replace("=3G", "=3Q")).contains("3Q"));
}

/// `#Name=value` without its sign; a comment in words as it is.
fn uncommented(line: &str) -> &str {
    line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())).unwrap_or(line)
}

/// Complaints of systemd about a service with this drop-in.
fn verify(drop_in: &str) -> String {
    let folder = tempfile::tempdir().expect("a directory");
    let unit = folder.path().join("weir-example.service");
    let drop_ins = folder.path().join("weir-example.service.d");
    std::fs::create_dir(&drop_ins).expect("a directory");
    std::fs::write(&unit, "[Service]\nExecStart=/bin/sleep 1\n").expect("the unit");
    std::fs::write(drop_ins.join("weir.conf"), drop_in).expect("the drop-in");
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().expect("it starts");
    // It also complains about other units of the machine.
    let of_the_unit = |line: &&str| line.contains("weir");
    describe(&output).lines().filter(of_the_unit).collect()
}

/// The calls in the table of docs/design/being-malloc.md.
fn calls_in_design() -> Vec<String> {
    let design = read("design/being-malloc.md");
    let (_, table) = design.split_once("## System calls").expect("the list of calls");
    let rows = table.split("\n## ").next().expect("its section").lines().filter(|line| line.starts_with("| "));
    // What lies between two quotes.
    let quoted = |row: &str| row.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let calls: Vec<String> = rows.filter_map(|row| row.split('|').nth(2)).flat_map(quoted).collect();
    let is_call = |word: &String| word.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c));
    let calls: Vec<String> = calls.into_iter().filter(is_call).collect();
    assert!(calls.len() > 30 && calls.iter().any(|call| call == "mincore"), "{calls:?}");
    calls
}

/// A service whose filter kills for calls that it does not list, and which the document tells to add some.
#[test]
#[ignore = "nightly: needs systemd-analyze"]
fn the_calls_that_a_systemd_filter_lacks_are_named() {
    if !has("systemd-analyze") {
        return;
    }
    let sets = support::run(Command::new("systemd-analyze").arg("syscall-filter"));
    let allowed = |call: &str| ["@default", "@system-service"].iter().any(|set| contains(&sets, set, call));
    assert!(allowed("mmap") && allowed("futex") && !allowed("reboot"), "{sets}");
    let deploy = read("DEPLOY.md");
    let added = deploy.lines().find_map(|line| line.trim().strip_prefix("SystemCallFilter=")).expect("the line");
    let calls = calls_in_design();
    let lacking: Vec<_> =
        calls.into_iter().filter(|call| !allowed(call) && !added.split(' ').any(|name| name == *call)).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}

/// The program's own, which `libweir.a` makes for it.
const OF_THE_PROGRAM: [&str; 5] = ["chroot", "mount", "pivot_root", "setns", "umount2"];

#[test]
fn each_system_call_of_the_sources_is_in_the_list_and_none_more() {
    let mut called = std::collections::BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/weir-linux/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                // The list is of x86-64; below it stands what arm64 has in place of two of its calls.
                folders.extend((!path.ends_with("arch/aarch64")).then_some(path));
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source");
            let is_test = path.to_string_lossy().ends_with("_tests.rs");
            let code = text.split("#[cfg(test)]\nmod ").next().filter(|_| !is_test).unwrap_or_default();
            let names = code.split("__NR_").skip(1);
            let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            called.extend(names.map(|rest| rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())].to_owned()));
        }
    }
    OF_THE_PROGRAM.iter().for_each(|call| assert!(called.remove(*call), "{call}"));
    let listed = calls_in_design().into_iter().collect();
    assert!(called.len() > 40 && called == listed, "{:?}", called.symmetric_difference(&listed).collect::<Vec<_>>());
}

/// Whether a set of system calls has this one, itself or in a set that it names.
fn contains(sets: &str, set: &str, call: &str) -> bool {
    let members = sets.lines().skip_while(|line| *line != set).skip(1).take_while(|line| !line.starts_with('@'));
    members.map(str::trim).any(|member| member == call || (member.starts_with('@') && contains(sets, member, call)))
}

#[test]
fn dockerfile_has_the_steps_that_the_gate_takes() {
    let text = read("deploy/Dockerfile");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let verbs: Vec<&str> = lines.iter().filter_map(|line| line.split_once(' ').map(|(verb, _)| verb)).collect();
    // .ci/package takes a line for a step.
    assert_eq!(verbs, ["FROM", "COPY", "RUN", "ENV", "ENV", "CMD"]);
    assert!(lines.iter().all(|line| !line.ends_with('\\')), "{text}");
    assert!(lines.contains(&&*format!("ENV LD_PRELOAD={LIBRARY}")), "{text}");
    let (_, command) = lines[5].split_once(' ').expect("a command");
    assert!(serde_json::from_str::<Vec<String>>(command).is_ok_and(|words| !words.is_empty()), "{command}");
}

#[test]
fn the_document_names_files_that_exist() {
    let text = read("DEPLOY.md");
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let files: Vec<&str> = links.filter(|link| !link.starts_with('#')).collect();
    for wanted in ["deploy/weir.conf", "deploy/Dockerfile", "deploy/kubernetes.yaml"] {
        assert!(files.contains(&wanted), "{wanted} is not mentioned");
    }
    files.into_iter().for_each(|file| drop(read(file.split('#').next().unwrap_or(file))));
    // The one place that says where the library is.
    let wrong = text.split_whitespace().filter(|word| word.contains("libweir.so.0") && word.starts_with("/usr/lib/"));
    wrong.for_each(|word| assert!(word.starts_with(LIBRARY), "{word}"));
}
