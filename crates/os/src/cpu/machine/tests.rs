//! Descriptions of three machines, made up after real ones.

use super::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Directory with a description, removed at the end.
struct Tree(PathBuf);

impl Tree {
    /// Makes the files of `text`, each line of which is a path and its contents. `*` in a line
    /// stands for each number of the list in brackets that begins the line.
    fn new(name: &str, text: &str) -> Tree {
        static TREES: AtomicUsize = AtomicUsize::new(0);
        let number = TREES.fetch_add(1, Ordering::Relaxed);
        let name = format!("oikaze-{}-{name}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&root);
        let tree = Tree(root);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
                Some((numbers, line)) => {
                    for number in parse_cpulist(numbers).unwrap() {
                        tree.add(&line.replace('*', &number.to_string()));
                    }
                }
                None => tree.add(line),
            }
        }
        tree
    }

    fn add(&self, line: &str) {
        let (path, contents) = line.split_once(' ').unwrap_or((line, ""));
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents.replace('|', "\n") + "\n").unwrap();
    }

    /// Lets an interface name its device, as the kernel does by a link.
    fn device(&self, interface: &str, device: &str) {
        let at = self.0.join("sys/class/net").join(interface);
        fs::create_dir_all(&at).unwrap();
        std::os::unix::fs::symlink(self.0.join("sys/devices").join(device), at.join("device"))
            .unwrap();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Four cores with SMT, one socket. The kernel numbers siblings next to each other.
fn laptop() -> Tree {
    let tree = Tree::new(
        "laptop",
        "sys/devices/system/cpu/online 0-7
         [0,1] sys/devices/system/cpu/cpu*/topology/thread_siblings_list 0-1
         [2,3] sys/devices/system/cpu/cpu*/topology/thread_siblings_list 2-3
         [4,5] sys/devices/system/cpu/cpu*/topology/thread_siblings_list 4-5
         [6,7] sys/devices/system/cpu/cpu*/topology/thread_siblings_list 6-7
         [0,1] sys/devices/system/cpu/cpu*/cache/index0/level 1
         [0,1] sys/devices/system/cpu/cpu*/cache/index0/type Data
         [0,1] sys/devices/system/cpu/cpu*/cache/index0/size 48K
         [0,1] sys/devices/system/cpu/cpu*/cache/index0/shared_cpu_list 0-1
         [0,1] sys/devices/system/cpu/cpu*/cache/index1/level 1
         [0,1] sys/devices/system/cpu/cpu*/cache/index1/type Instruction
         [0,1] sys/devices/system/cpu/cpu*/cache/index1/shared_cpu_list 0-1
         [0-7] sys/devices/system/cpu/cpu*/cache/index3/level 3
         [0-7] sys/devices/system/cpu/cpu*/cache/index3/type Unified
         [0-7] sys/devices/system/cpu/cpu*/cache/index3/size 12288K
         [0-7] sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list 0-7
         sys/devices/system/node/node0/cpulist 0-7
         sys/devices/pci0000:00/0000:00:1f.6/numa_node -1
         sys/devices/pci0000:00/0000:00:1f.6/msi_irqs/130 msi
         proc/irq/130/smp_affinity_list 0-7
         proc/interrupts CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7|\
         9: 0 1 0 0 0 0 0 0 IR-IO-APIC 9-fasteoi acpi|\
         130: 0 0 0 0 0 812 0 0 IR-PCI-MSI 520192-edge enp0s31f6|\
         NMI: 1 2 3 4 5 6 7 8 Non-maskable interrupts",
    );
    tree.device("enp0s31f6", "pci0000:00/0000:00:1f.6");
    // Loopback has no device.
    fs::create_dir_all(tree.0.join("sys/class/net/lo")).unwrap();
    tree
}

/// Two sockets of four cores with SMT. The kernel numbers the siblings after all cores. The card is
/// at the first socket.
fn server() -> Tree {
    let mut text = String::from(
        "sys/devices/system/cpu/online 0-15
         sys/devices/system/node/node0/cpulist 0-3,8-11
         sys/devices/system/node/node1/cpulist 4-7,12-15
         sys/devices/system/node/node2/cpulist \n
         sys/devices/pci0000:3a/0000:3b:00.0/numa_node 0
         [40-43] sys/devices/pci0000:3a/0000:3b:00.0/msi_irqs/* msix
         [40-43] proc/irq/*/smp_affinity_list 0-3
         proc/interrupts CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7 CPU8 CPU9 CPU10 CPU11 CPU12 CPU13 CPU14 CPU15\
         |40: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 PCI-MSI mlx5_async0@pci:0000:3b:00.0\
         |41: 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 PCI-MSI mlx5_comp0@pci:0000:3b:00.0\
         |42: 0 0 9 0 0 0 0 0 0 0 0 0 0 0 0 0 PCI-MSI mlx5_comp1@pci:0000:3b:00.0\
         |43: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 PCI-MSI mlx5_comp2@pci:0000:3b:00.0\n",
    );
    for core in 0..8 {
        let sibling = core + 8;
        text += &format!(
            "[{core},{sibling}] sys/devices/system/cpu/cpu*/topology/thread_siblings_list {core},{sibling}\n"
        );
    }
    let tree = Tree::new("server", &text);
    tree.device("ens1", "pci0000:3a/0000:3b:00.0");
    tree
}

/// A virtual machine of two cores, which hides siblings, caches and NUMA nodes.
fn small() -> Tree {
    let tree = Tree::new(
        "small",
        "sys/devices/system/cpu/online 0-1
         sys/devices/virtio3/vendor 0x1af4
         proc/irq/26/smp_affinity_list 0
         proc/irq/27/smp_affinity_list 1
         proc/interrupts CPU0 CPU1|\
         26: 0 0 PCI-MSI 49152-edge virtio3-input.0|\
         27: 0 0 PCI-MSI 49153-edge virtio3-output.0|\
         28: 5 5 PCI-MSI 49153-edge virtio30-output.0",
    );
    tree.device("eth0", "virtio3");
    tree
}

fn line(advice: &Advice) -> Option<String> {
    advice.bind.as_ref().map(CoreBinding::to_string)
}

#[test]
fn laptop_has_cores_caches_and_interrupts() {
    let machine = Machine::read(&laptop().0);
    assert_eq!(machine.cores, [[0, 1], [2, 3], [4, 5], [6, 7]]);
    let cache = |level, size: &str, cpus| Cache { level, size: size.into(), cpus };
    assert_eq!(
        machine.caches,
        [cache(1, "48K", vec![0, 1]), cache(3, "12288K", (0..8).collect())],
        "instructions are not data"
    );
    assert_eq!(machine.numa_nodes, BTreeMap::from([(0, (0..8).collect())]));
    assert_eq!(
        machine.nics,
        [Nic {
            name: "enp0s31f6".into(),
            numa_node: None,
            interrupts: 1,
            cpus: vec![5],
            targets: BTreeMap::from([(130, vec![5])]),
        }]
    );
    assert_eq!(machine.nics[0].to_string(), "enp0s31f6: 1 interrupts on cores 5");
}

#[test]
fn advice_on_the_laptop_gives_communication_a_core() {
    let machine = Machine::read(&laptop().0);
    assert_eq!(line(&machine.advice(1)).unwrap(), "app=0,2,4,engine=6");
    assert_eq!(line(&machine.advice(2)).unwrap(), "app=0,4,engine=2,6");
    let four = machine.advice(4);
    assert_eq!(line(&four).unwrap(), "app=0,2,4,6,engine=1,3,5,7");
    assert!(four.why.contains("SMT sibling"), "{}", four.why);
    let five = machine.advice(5);
    assert!(five.bind.is_none() && five.why.contains("5 nodes share 4 cores"), "{five:?}");
}

#[test]
fn server_has_two_numa_nodes_and_a_card_at_one() {
    let machine = Machine::read(&server().0);
    assert_eq!(machine.cores.len(), 8);
    assert_eq!(machine.cores[0].as_slice(), [0, 8].as_slice());
    assert_eq!(machine.cores[7].as_slice(), [7, 15].as_slice());
    assert_eq!(machine.numa_nodes.len(), 2, "a node without processors is none");
    assert_eq!(
        machine.nics,
        [Nic {
            name: "ens1".into(),
            numa_node: Some(0),
            interrupts: 4,
            cpus: vec![0, 2],
            targets: BTreeMap::from([(41, vec![0]), (42, vec![2])]),
        }]
    );
}

/// The engine of one node is near the card. Two nodes divide the sockets.
#[test]
fn advice_on_the_server_puts_the_engine_near_the_card() {
    let machine = Machine::read(&server().0);
    assert_eq!(line(&machine.advice(1)).unwrap(), "app=4-7,0-2,engine=3");
    let two = machine.advice(2).bind.unwrap();
    assert_eq!(two.share(0, 2), CoreBinding { app: vec![4, 5, 6], engine: vec![7] });
    assert_eq!(two.share(1, 2), CoreBinding { app: vec![0, 1, 2], engine: vec![3] });
}

#[test]
fn small_machine_hides_most_of_itself() {
    let machine = Machine::read(&small().0);
    assert_eq!(machine.cores, [[0], [1]]);
    assert!(machine.caches.is_empty() && machine.numa_nodes.is_empty());
    assert_eq!(
        machine.nics,
        [Nic {
            name: "eth0".into(),
            numa_node: None,
            interrupts: 2,
            cpus: vec![0, 1],
            targets: BTreeMap::from([(26, vec![0]), (27, vec![1])]),
        }],
        "no interrupt has come yet, and that of virtio30 is another's"
    );
    assert_eq!(line(&machine.advice(1)).unwrap(), "app=0,engine=1");
    let two = machine.advice(2);
    assert_eq!(line(&two).unwrap(), "app=0-1");
    assert!(two.why.contains("stays with the thread that waits"), "{}", two.why);
}

#[test]
fn interrupts_on_cores_of_the_application_are_misplaced() {
    let misplaced = |tree: &Tree, bind: &str| {
        Machine::read(&tree.0).misplaced_interrupts(&bind.parse().unwrap())
    };
    let found = |nic: &str, interrupts: &[u32], cores: &[CpuId], better: &[CpuId]| {
        let (interrupts, cores, better) = (interrupts.into(), cores.into(), better.into());
        vec![MisplacedInterrupts { nic: nic.into(), interrupts, cores, better }]
    };
    let server = server();
    let on_server = misplaced(&server, "app=4-7,0-2,engine=3");
    assert_eq!(on_server, found("ens1", &[41, 42], &[0, 2], &[3]));
    assert_eq!(misplaced(&server, "app=1-3,engine=0"), found("ens1", &[42], &[2], &[0]));
    assert_eq!(misplaced(&server, "app=4-7,engine=0,2"), []);
    let small = small();
    assert_eq!(misplaced(&small, "app=0,engine=1"), found("eth0", &[26], &[0], &[1]));
    assert_eq!(misplaced(&small, "app=0"), found("eth0", &[26], &[0], &[1]), "1 has nothing to do");
    assert_eq!(misplaced(&small, "app=0-1"), [], "no other core could serve them");
    // The interrupts were moved: cores that served them before do so no more.
    server.add("proc/irq/41/smp_affinity_list 3");
    server.add("proc/irq/42/effective_affinity_list 3");
    assert_eq!(misplaced(&server, "app=4-7,0-2,engine=3"), []);
}

#[test]
fn process_that_may_use_few_cores_is_advised_on_those() {
    let machine = Machine::read(&laptop().0).restricted_to(&[2, 3, 6]);
    assert_eq!(machine.cpus(), [2, 3, 6]);
    assert_eq!(line(&machine.advice(1)).unwrap(), "app=2,engine=6");
}

#[test]
fn what_is_missing_or_nonsense_is_left_out() {
    let tree = Tree::new(
        "nonsense",
        "sys/devices/system/cpu/online 0-1
         sys/devices/system/cpu/cpu0/topology/thread_siblings_list zero
         sys/devices/system/cpu/cpu0/cache/index0/level one
         sys/devices/system/node/nodeX/cpulist 0
         proc/interrupts no columns|1:|x: 1 2 3|:",
    );
    let machine = Machine::read(&tree.0);
    assert_eq!(machine, Machine { cores: vec![vec![0], vec![1]], ..Machine::default() });
    assert_eq!(Machine::read(Path::new("/nonexistent")), Machine::default());
    assert!(Machine::default().advice(1).bind.is_none());
}

#[test]
fn this_machine_can_be_read() {
    let (machine, online) = (Machine::here(), super::super::online_cpus().unwrap());
    assert_eq!(machine.cpus(), online);
}
