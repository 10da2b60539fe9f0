//! Programs that the threads of simulated nodes run. The simulator uses no real threads. It polls
//! each program after every turn of the node's engine.

mod accessor;
mod caster;
mod counter;
mod doing;
mod interface;
pub(crate) mod layout;
mod messenger;
mod plan_shared;
mod registrar;
mod sharer;

pub use accessor::{Accessor, Work};
pub use caster::{Caster, Casting};
pub use counter::Counter;
pub use interface::{Context, Program, Progress, SimEngine};
pub use layout::{FIXED_LEN, Layout, ONES, WORDS_LEN};
pub use messenger::{Mail, Messenger};
pub use plan_shared::SharedPlan;
pub use plan_shared::Size;
pub use registrar::{Registering, Registrar};
pub use sharer::collective::Together;
pub use sharer::{Sharer, access_letter};
