//! Any bytes to every decoder of the store's protocol: they make no sense, or sense that is written
//! and read the same.
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_launch::store::protocol::{Greeting, Proof, Reply, Request, Verdict};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(greeting) = Greeting::decode(bytes) {
        assert_eq!(
            Greeting::decode(&greeting.encode()).map(|again| again.version),
            Ok(greeting.version)
        );
    }
    if let Ok(Ok(proof)) = Proof::decode(bytes) {
        assert_eq!(proof.encode(), bytes);
    }
    if let Ok(verdict) = Verdict::decode(bytes) {
        // A text that is no UTF-8 is mended when it is read, and may be clipped when it is written.
        let again = Verdict::decode(&verdict.encode()).expect("what is written is read");
        assert_eq!(again.encode(), verdict.encode());
    }
    if let Ok((id, request)) = Request::decode(bytes) {
        let again = Request::decode(&request.encode(id)).expect("what is written is read");
        assert_eq!((again.0, again.1.encode(id)), (id, request.encode(id)));
    }
    if let Ok((id, reply)) = Reply::decode(bytes) {
        let again = Reply::decode(&reply.encode(id)).expect("what is written is read");
        assert_eq!((again.0, again.1.encode(id)), (id, reply.encode(id)));
    }
});
