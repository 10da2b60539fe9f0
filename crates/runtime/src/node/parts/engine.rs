//! The engine of a real node.

use oikaze_engine::Engine;
use oikaze_os::memory::tracking::PageSet;
use oikaze_os::net::Link;

/// Engine of a real node.
pub type RealEngine = Engine<Box<dyn Link>, PageSet>;
