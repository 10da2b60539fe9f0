//! Agreement of all nodes of a job on memory that all of them map for an array (COH-16.1). An array
//! that replaces another one gets memory of its own (COH-16.11).

use crate::error::{Error, Result};
use oikaze_engine::{Request, Value};
use oikaze_os::memory::tracking::{SharedMemory, Tracker, sparse_file};
use oikaze_os::shm::{Arena, ArrayForm, Segment, SegmentMembers, segment_file_len};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{ArrayId, CallStep, Declaration, Values};
use oikaze_runtime::node::Node;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Node that makes the memory.
const MAKER: Rank = 0;

/// Array that is about to be declared.
pub(super) struct NewArray<'a> {
    pub node: &'a Arc<Node>,
    pub tracker: &'a Arc<dyn Tracker>,
    pub declaration: &'a Declaration,
    pub form: ArrayForm,
    /// Operation, for errors.
    pub doing: &'a str,
    pub limit: Option<Duration>,
}

/// Memory that the nodes have agreed on.
pub(super) enum Agreed {
    /// All nodes map this memory.
    Segment(Arc<SharedMemory>),
    /// Each node keeps pages of its own, for this reason.
    Pages(String),
}

impl NewArray<'_> {
    /// Agrees with all nodes on the memory of the array. Collective. A node that cannot map it says
    /// so in each step, and then no node does.
    #[track_caller]
    pub fn agree(&self) -> Result<Agreed> {
        let Some(arena) = self.node.coherence.calls.arena() else {
            let why = match self.node.with_engine(|engine| engine.nodes()) {
                1 => "the job has one node",
                _ => self
                    .node
                    .coherence
                    .why_no_arena()
                    .unwrap_or("not all nodes of the job are on one machine"),
            };
            return Ok(Agreed::Pages(why.into()));
        };
        let array = self.node.with_engine(|engine| engine.coherence().next_array());
        let agreed = self.agree_by_steps(array, arena);
        match &agreed {
            Ok(Agreed::Segment(_)) => {}
            Ok(Agreed::Pages(why)) => {
                // The file of this number may be here.
                drop(self.take(array));
                self.node.publisher.paths().paged(|| why.clone());
            }
            Err(error) => {
                drop(self.take(array));
                // Each declaration uses up a number on all nodes.
                self.node.with_engine(|engine| engine.coherence().skip_arrays(array + 1));
                // A mismatch is the same on all nodes. After any other error, others may go on.
                if !error.is_mismatch() {
                    self.node.coherence.give_up(self.node, &error.to_string());
                }
            }
        }
        agreed
    }

    #[track_caller]
    fn agree_by_steps(&self, array: ArrayId, arena: &Arc<Arena>) -> Result<Agreed> {
        let made = self.make(array);
        if let Err(why) = self.step(made.as_ref().err())? {
            return Ok(Agreed::Pages(why));
        }
        let mapped = made.and_then(|made| self.map(array, arena, made));
        match (self.step(mapped.as_ref().err())?, mapped) {
            (Ok(()), Ok(memory)) => Ok(Agreed::Segment(memory)),
            (Err(why), _) | (_, Err(why)) => Ok(Agreed::Pages(why)),
        }
    }

    /// Tells all nodes why this one cannot go on, if so. Returns why no node goes on. The nodes
    /// compare their declarations later (COH-6.2).
    #[track_caller]
    fn step(&self, problem: Option<&String>) -> Result<std::result::Result<(), String>> {
        let number = problem.map_or(0, |_| u64::from(self.node.rank()) + 1);
        let step = CallStep { call: self.doing.to_owned(), step: 0, arguments: 0, number };
        let request = Request::Step(step);
        let agreed = self.node.coherence.collective(self.node, &self.doing, request, self.limit)?;
        match (agreed, problem) {
            (_, Some(why)) => Ok(Err(why.clone())),
            (Value::Reduced(Values::U64(numbers)), None) if let [number] = numbers[..] => {
                Ok(match number {
                    0 => Ok(()),
                    rank => Err(format!(
                        "node {} cannot map memory that others map; its own reason tells more",
                        rank - 1
                    )),
                })
            }
            _ => Err(Error::invalid(self.doing, "the result is of another type (a defect)")),
        }
    }

    /// Takes the file that another node has made, if it is here.
    fn take(&self, array: ArrayId) -> Option<OwnedFd> {
        self.node.with_engine(|engine| engine.shm_mut().take_segment(MAKER, array))
    }

    /// Makes the file and sends it to all other nodes, if this node is the one that does.
    fn make(&self, array: ArrayId) -> std::result::Result<Option<Arc<OwnedFd>>, String> {
        if self.node.coherence.segments.is_switched_off() {
            return Err("OIKAZE_WITHOUT=segment".into());
        }
        if self.node.rank() != MAKER {
            return Ok(None);
        }
        let file = sparse_file(&self.declaration.name, self.file_len()?);
        let file = Arc::new(file.map_err(|why| why.to_string())?);
        let sent = self.node.with_engine(|engine| engine.shm().send_segment(array, file.as_fd()));
        sent.map_err(|why| format!("the file cannot be sent to the other nodes: {why}"))?;
        Ok(Some(file))
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.declaration.bytes).unwrap_or(usize::MAX)
    }

    fn file_len(&self) -> std::result::Result<usize, String> {
        let nodes = self.node.with_engine(|engine| engine.nodes());
        segment_file_len(self.bytes(), nodes).map_err(|why| why.to_string())
    }

    /// Maps the file, and finds memory for the pages whose home is here, so that they lie near this
    /// node (COH-16.4).
    fn map(
        &self,
        array: ArrayId,
        arena: &Arc<Arena>,
        made: Option<Arc<OwnedFd>>,
    ) -> std::result::Result<Arc<SharedMemory>, String> {
        let file = match made {
            Some(file) => file,
            None => Arc::new(self.take(array).ok_or("its file has not come (see ulimit -n)")?),
        };
        let (me, nodes, arena) = (self.node.rank(), arena.members(), Arc::clone(arena));
        let has_ended = Arc::new(move |rank| arena.process_has_ended(rank));
        let members = SegmentMembers { me, nodes, has_ended };
        let Declaration { name, homes, .. } = self.declaration;
        let (bytes, table) = (self.bytes(), &self.node.coherence.segments);
        let segment = Segment::new(&file, (name, bytes), self.form, members, table.notes());
        let segment = segment.map_err(|why| why.to_string())?;
        table.add(&segment);
        let tracker = Arc::clone(self.tracker);
        let memory = SharedMemory::of_segment(array, name, bytes, &file, segment, tracker);
        let memory = memory
            .map_err(|why| why.to_string())?
            .counted(Arc::clone(self.node.coherence.guards()));
        for run in homes.runs(me, memory.pages(), nodes) {
            memory.populate(run).map_err(|why| why.to_string())?;
        }
        Ok(Arc::new(memory))
    }
}
