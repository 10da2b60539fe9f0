//! Cases of the bench, each a part that the user can choose.

pub mod awaiting;
pub mod crowd;
pub mod detect;
pub mod form;
pub mod idle;
pub mod kills;
pub mod loaded;
pub mod post;
pub mod request;
pub mod wake;
