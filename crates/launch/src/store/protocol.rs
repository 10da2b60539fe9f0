//! Frames of the store's protocol: `length u32 | body | tag`, little-endian; the tag only after the
//! handshake.
//!
//! In the handshake, the store greets with its version and a nonce. The node answers with its
//! version, place and nonce, and proves the secret over all of it. The store proves the secret too.
//! Labels differ by direction, so no proof can be reflected.
//!
//! From then on each frame is encrypted by AES-128-GCM under a key of its direction, derived from a
//! session key. Its nonce is the frame's number, and its length is associated data. An attacker on
//! the path cannot read, insert, drop or repeat frames. The secret itself never travels here.

use crate::{KEY_MAX, NodeEnd, Secret, VALUE_MAX};
use oikaze_protocol::bytes::{ByteReader, ByteWriter, Invalid};

/// Protocol version, which must be the same at both ends.
pub const VERSION: u16 = 5;
/// Length of the length field in front of a frame, in bytes.
pub const LENGTH_LEN: usize = 4;
/// Length of a frame's tag, in bytes.
pub const TAG_LEN: usize = 16;
/// Maximum length of the text of a refusal or an abort, in bytes.
pub const TEXT_MAX: usize = 1024;
/// Maximum length of a question or an answer, in bytes (4 KiB).
pub const QUESTION_MAX: usize = 4096;
/// Maximum length of a frame after the handshake, in bytes.
pub const FRAME_MAX: usize = VALUE_MAX + KEY_MAX + 64 + TAG_LEN;
/// Maximum length of a frame of the handshake, in bytes.
pub const HANDSHAKE_MAX: usize = 256 + TEXT_MAX;
/// Length of a nonce, in bytes.
pub const NONCE_LEN: usize = 32;
/// Length of the identity of a process, in bytes.
pub const PROCESS_LEN: usize = 16;

const MAGIC: &[u8; 8] = b"OIKAZEST";

/// Error for bytes that are not a frame of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a frame of the store's protocol: {0}")]
pub struct Malformed(pub &'static str);

impl From<Invalid> for Malformed {
    fn from(Invalid: Invalid) -> Malformed {
        Malformed("too short or too long")
    }
}

fn read_key(bytes: &mut ByteReader<'_>) -> Result<String, Malformed> {
    let len = usize::from(bytes.u8()?);
    if len > KEY_MAX {
        return Err(Malformed("key too long"));
    }
    let key = bytes.take(len)?;
    Ok(std::str::from_utf8(key).map_err(|_| Malformed("key is not UTF-8"))?.to_owned())
}

fn read_rest<'a>(bytes: &mut ByteReader<'a>, max: usize) -> Result<&'a [u8], Malformed> {
    let len = bytes.0.len();
    if len > max { Err(Malformed("too long")) } else { Ok(bytes.take(len)?) }
}

fn read_text(bytes: &mut ByteReader<'_>, max: usize) -> Result<String, Malformed> {
    Ok(String::from_utf8_lossy(read_rest(bytes, max)?).into_owned())
}

fn read_end(bytes: &mut ByteReader<'_>) -> Result<NodeEnd, Malformed> {
    let (rank, success) = (bytes.u32()?, bytes.u8()?);
    if success > 1 {
        return Err(Malformed("neither success nor failure"));
    }
    Ok(NodeEnd { rank, how: read_text(bytes, TEXT_MAX)?, success: success == 1 })
}

/// Returns at most [`TEXT_MAX`] bytes of a text, cut between characters.
#[must_use]
pub fn clip(text: &str) -> &str {
    clip_to(text, TEXT_MAX)
}

/// Returns at most `max` bytes of a text, cut between characters.
#[must_use]
pub fn clip_to(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Writes a key. Callers check keys against `KEY_MAX`, which fits one byte.
fn put_key<'a>(body: &'a mut Vec<u8>, key: &str) -> &'a mut Vec<u8> {
    let key = clip_to(key, KEY_MAX);
    body.put_u8(key.len() as u8).put(key.as_bytes())
}

fn encode_end(end: &NodeEnd) -> Vec<u8> {
    [&end.rank.to_le_bytes()[..], &[u8::from(end.success)], clip(&end.how).as_bytes()].concat()
}

/// First message of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Version of the store.
    pub version: u16,
    /// Nonce of this connection.
    pub nonce: [u8; NONCE_LEN],
}

impl Greeting {
    /// Encodes the greeting as a body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&MAGIC[..], &self.version.to_le_bytes(), &self.nonce].concat()
    }

    /// Decodes a body. Later versions may append, so only the front is read if the version is
    /// another one.
    ///
    /// # Errors
    /// The body is not a greeting.
    pub fn decode(body: &[u8]) -> Result<Greeting, Malformed> {
        let mut bytes = ByteReader(body);
        if bytes.array()? != *MAGIC {
            return Err(Malformed("no greeting of a store"));
        }
        let version = bytes.u16()?;
        if version != VERSION {
            return Ok(Greeting { version, nonce: [0; NONCE_LEN] });
        }
        let nonce = bytes.array()?;
        bytes.end()?;
        Ok(Greeting { version, nonce })
    }
}

/// Answer of a node to the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Version of the node.
    pub version: u16,
    /// Rank that the caller claims.
    pub rank: u32,
    /// Number of nodes of the job, as the caller has it.
    pub size: u32,
    /// Incarnation of the caller.
    pub incarnation: u64,
    /// Identity of the process: the same for all its connections.
    pub process: [u8; PROCESS_LEN],
    /// Number of this proof among those of the process, from 1.
    pub attempt: u32,
    /// Nonce of this connection.
    pub nonce: [u8; NONCE_LEN],
    /// Proof of the secret, over all of the above and the greeting.
    pub mac: [u8; 32],
}

impl Proof {
    /// Fills in `mac`.
    #[must_use]
    pub fn signed(mut self, secret: &Secret, greeting: &Greeting) -> Proof {
        self.mac = secret.mac(&[b"oikaze store: node's proof", &greeting.encode(), &self.claims()]);
        self
    }

    /// Returns `true` if the node knows the secret.
    #[must_use]
    pub fn verify(&self, secret: &Secret, greeting: &Greeting) -> bool {
        secret
            .verify(&[b"oikaze store: node's proof", &greeting.encode(), &self.claims()], &self.mac)
    }

    /// Returns the store's proof in return.
    #[must_use]
    pub fn answer(&self, secret: &Secret, greeting: &Greeting) -> [u8; 32] {
        secret.mac(&[b"oikaze store: store's proof", &greeting.encode(), &self.claims()])
    }

    /// Returns the store's proof that a refusal in these words is its own.
    #[must_use]
    pub fn refusal(&self, secret: &Secret, greeting: &Greeting, why: &str) -> [u8; 32] {
        secret.mac(&[
            b"oikaze store: store's refusal",
            &greeting.encode(),
            &self.claims(),
            clip(why).as_bytes(),
        ])
    }

    /// Returns `true` if a refusal in these words is the store's own.
    #[must_use]
    pub fn verify_refusal(
        &self,
        secret: &Secret,
        greeting: &Greeting,
        why: &str,
        mac: &[u8; 32],
    ) -> bool {
        secret.verify(
            &[b"oikaze store: store's refusal", &greeting.encode(), &self.claims(), why.as_bytes()],
            mac,
        )
    }

    /// Returns the key of the connection that follows.
    #[must_use]
    pub fn session(&self, secret: &Secret, greeting: &Greeting) -> Secret {
        secret.derive(&[b"oikaze store: session", &greeting.encode(), &self.claims()])
    }

    fn claims(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.put_u16(self.version).put_u32(self.rank).put_u32(self.size).put_u64(self.incarnation);
        body.put(&self.process).put_u32(self.attempt).put(&self.nonce);
        body
    }

    /// Encodes the proof as a body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.claims();
        body.extend(self.mac);
        body
    }

    /// Decodes a body. Returns `Ok(Err(version))` for a proof of another version.
    ///
    /// # Errors
    /// The body is not a proof.
    pub fn decode(body: &[u8]) -> Result<Result<Proof, u16>, Malformed> {
        let mut bytes = ByteReader(body);
        if bytes.array()? != *MAGIC {
            return Err(Malformed("no proof of a node"));
        }
        let version = bytes.u16()?;
        if version != VERSION {
            return Ok(Err(version));
        }
        let proof = Proof {
            version,
            rank: bytes.u32()?,
            size: bytes.u32()?,
            incarnation: bytes.u64()?,
            process: bytes.array()?,
            attempt: bytes.u32()?,
            nonce: bytes.array()?,
            mac: bytes.array()?,
        };
        bytes.end()?;
        Ok(Ok(proof))
    }
}

/// End of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node is accepted. The value is the store's proof.
    Welcome([u8; 32]),
    /// The node is refused.
    Refused {
        /// [`Proof::refusal`] if the node has proven that it knows the secret, else zeros.
        mac: [u8; 32],
        /// Cause of the refusal.
        why: String,
    },
}

impl Verdict {
    /// Encodes the verdict as a body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Verdict::Welcome(mac) => [&[0][..], mac].concat(),
            Verdict::Refused { mac, why } => [&[1][..], mac, clip(why).as_bytes()].concat(),
        }
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// The body is not a verdict.
    pub fn decode(body: &[u8]) -> Result<Verdict, Malformed> {
        let mut bytes = ByteReader(body);
        match bytes.u8()? {
            0 => {
                let mac = bytes.array()?;
                bytes.end()?;
                Ok(Verdict::Welcome(mac))
            }
            1 => {
                Ok(Verdict::Refused { mac: bytes.array()?, why: read_text(&mut bytes, TEXT_MAX)? })
            }
            _ => Err(Malformed("unknown verdict")),
        }
    }
}

/// Request of a node to the store. Time limits are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Publishes a value.
    Put(String, Vec<u8>),
    /// Waits for a value.
    Get(String, u64),
    /// Waits for all nodes.
    Fence(String, u64),
    /// Ends the job.
    Abort(String),
    /// Asks the launcher to let the other nodes go on after the death of a node. Answered by
    /// `Done`.
    KeepGoing,
    /// Asks the node of this rank a question, with a time limit. Answered by `Done` with the text.
    Ask(u32, u64, String),
    /// Answers the question of this number ([`Reply::Question`]). The store does not reply.
    Answer(u32, String),
    /// Tells the launcher that this node has joined the job. Answered by `Done`.
    Joined,
    /// Tells the launcher that this node has left the job. Answered by `Done`.
    Left,
}

impl Request {
    /// Encodes the request as a body. `id` comes back with the reply.
    #[must_use]
    pub fn encode(&self, id: u32) -> Vec<u8> {
        let mut body = id.to_le_bytes().to_vec();
        match self {
            Request::Put(key, value) => put_key(body.put_u8(1), key).put(value),
            Request::Get(key, limit) => put_key(body.put_u8(2), key).put_u64(*limit),
            Request::Fence(key, limit) => put_key(body.put_u8(3), key).put_u64(*limit),
            Request::Abort(why) => body.put_u8(4).put(clip(why).as_bytes()),
            Request::KeepGoing => body.put_u8(5),
            Request::Ask(rank, limit, question) => {
                body.put_u8(6).put_u32(*rank).put_u64(*limit);
                body.put(clip_to(question, QUESTION_MAX).as_bytes())
            }
            Request::Answer(number, answer) => {
                body.put_u8(7).put_u32(*number).put(clip_to(answer, QUESTION_MAX).as_bytes())
            }
            Request::Joined => body.put_u8(8),
            Request::Left => body.put_u8(9),
        };
        body
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// The body is not a request.
    pub fn decode(body: &[u8]) -> Result<(u32, Request), Malformed> {
        let mut bytes = ByteReader(body);
        let id = bytes.u32()?;
        let request = match bytes.u8()? {
            1 => Request::Put(read_key(&mut bytes)?, read_rest(&mut bytes, VALUE_MAX)?.to_vec()),
            2 => Request::Get(read_key(&mut bytes)?, bytes.u64()?),
            3 => Request::Fence(read_key(&mut bytes)?, bytes.u64()?),
            4 => Request::Abort(read_text(&mut bytes, TEXT_MAX)?),
            5 => Request::KeepGoing,
            6 => {
                let (rank, limit) = (bytes.u32()?, bytes.u64()?);
                Request::Ask(rank, limit, read_text(&mut bytes, QUESTION_MAX)?)
            }
            7 => Request::Answer(bytes.u32()?, read_text(&mut bytes, QUESTION_MAX)?),
            8 => Request::Joined,
            9 => Request::Left,
            _ => return Err(Malformed("unknown operation")),
        };
        bytes.end()?;
        Ok((id, request))
    }
}

/// Request number of unasked messages.
pub const UNASKED: u32 = 0;

/// Reply of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request is done. The value is that of a get.
    Done(Vec<u8>),
    /// The request is not allowed, for this reason.
    Refused(String),
    /// The time limit passed. The text names what was missing.
    TimedOut(String),
    /// The job was ended, for this reason. Also sent unasked.
    Aborted(String),
    /// A node that is needed for the answer has ended.
    Gone(NodeEnd),
    /// The process of a node has ended. Sent unasked.
    Ended(NodeEnd),
    /// A question to this node. The number in front of the body is that of the question.
    Question(String),
}

impl Reply {
    /// Encodes the reply as a body.
    #[must_use]
    pub fn encode(&self, id: u32) -> Vec<u8> {
        let end;
        let (code, rest) = match self {
            Reply::Done(value) => (0, &value[..]),
            Reply::Refused(why) => (1, clip(why).as_bytes()),
            Reply::TimedOut(missing) => (2, clip(missing).as_bytes()),
            Reply::Aborted(why) => (3, clip(why).as_bytes()),
            Reply::Gone(of) | Reply::Ended(of) => {
                end = encode_end(of);
                (if matches!(self, Reply::Gone(_)) { 4 } else { 5 }, &end[..])
            }
            Reply::Question(question) => (6, clip_to(question, QUESTION_MAX).as_bytes()),
        };
        [&id.to_le_bytes()[..], &[code], rest].concat()
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// The body is not a reply.
    pub fn decode(body: &[u8]) -> Result<(u32, Reply), Malformed> {
        let mut bytes = ByteReader(body);
        let id = bytes.u32()?;
        let reply = match bytes.u8()? {
            0 => Reply::Done(read_rest(&mut bytes, VALUE_MAX)?.to_vec()),
            1 => Reply::Refused(read_text(&mut bytes, TEXT_MAX)?),
            2 => Reply::TimedOut(read_text(&mut bytes, TEXT_MAX)?),
            3 => Reply::Aborted(read_text(&mut bytes, TEXT_MAX)?),
            4 => Reply::Gone(read_end(&mut bytes)?),
            5 => Reply::Ended(read_end(&mut bytes)?),
            6 => Reply::Question(read_text(&mut bytes, QUESTION_MAX)?),
            _ => return Err(Malformed("unknown reply")),
        };
        Ok((id, reply))
    }
}
