//! Chapters of the user's book (`docs/book`). `cargo test --doc -p oikaze book` compiles their
//! programs, and runs each as a job of one node. `cargo test -p oikaze-cli --test documents` runs
//! them on several nodes.

macro_rules! chapters {
    ($($name:ident: $file:literal),* $(,)?) => {
        $(
            #[doc = include_str!(concat!("../../../docs/book/src/", $file))]
            mod $name {}
        )*
    };
}
chapters! {
    getting_started: "getting-started.md",
    installing: "installing.md",
    memory_model: "memory-model.md",
    remote_memory: "remote-memory.md",
    messages: "messages.md",
    shared_arrays: "shared-arrays.md",
    collectives: "collectives.md",
    mpi: "mpi.md",
    running: "running.md",
    launchers: "launchers.md",
    clouds: "clouds.md",
    firewalls_and_containers: "firewalls-and-containers.md",
    observing: "observing.md",
    tuning: "tuning.md",
    troubleshooting: "troubleshooting.md",
}
