//! Loom models of producers and consumers that map the same region, in every possible interleaving
//! ([`crate::models`]).

use super::queue::{Cells, QueueWord, pop, push};
use super::shape::Shape;
use crate::models::model;
use core::sync::atomic::Ordering;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

/// A queue of two slots. Loom watches the elements, and detects a read concurrent with a write.
struct Model {
    tail: AtomicU64,
    head: AtomicU64,
    turns: [AtomicU64; 2],
    lengths: [AtomicU64; 2],
    elements: [UnsafeCell<[u8; 2]>; 2],
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            turns: [AtomicU64::new(0), AtomicU64::new(1)],
            lengths: [AtomicU64::new(0), AtomicU64::new(0)],
            elements: [UnsafeCell::new([0; 2]), UnsafeCell::new([0; 2])],
        })
    }

    fn word(&self, cell: QueueWord) -> &AtomicU64 {
        match cell {
            QueueWord::Tail => &self.tail,
            QueueWord::Head => &self.head,
            QueueWord::Turn(position) => &self.turns[position as usize % 2],
            QueueWord::Length(position) => &self.lengths[position as usize % 2],
        }
    }

    fn push(&self, element: &[u8]) -> bool {
        match push(self, shape(), element) {
            Ok(()) => true,
            Err(super::NotPushed::Full) => false,
            Err(super::NotPushed::Destroyed) => panic!("nobody has written over it"),
        }
    }

    fn pop(&self) -> Option<Vec<u8>> {
        let mut element = Vec::new();
        pop(self, shape(), &mut element).unwrap().then_some(element)
    }
}

fn shape() -> Shape {
    Shape::new(2, 2).unwrap()
}

impl Cells for Model {
    fn load(&self, cell: QueueWord, order: Ordering) -> u64 {
        self.word(cell).load(order)
    }
    fn store(&self, cell: QueueWord, value: u64, order: Ordering) {
        self.word(cell).store(value, order);
    }
    fn claim(&self, cell: QueueWord, old: u64, new: u64) -> Result<(), u64> {
        self.word(cell).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
    fn write(&self, position: u64, bytes: &[u8]) {
        // SAFETY: the queue gives the slot to one producer; loom detects a violation.
        self.elements[position as usize % 2]
            .with_mut(|element| unsafe { (&mut *element)[..bytes.len()].copy_from_slice(bytes) });
    }
    fn read(&self, position: u64, len: u64, into: &mut Vec<u8>) {
        // SAFETY: the queue gives the slot to one consumer; loom detects a violation.
        self.elements[position as usize % 2]
            .with(|element| into.extend_from_slice(unsafe { &(&*element)[..len as usize] }));
    }
}

/// Two producers push two elements each while one consumer pops. Each element comes out once,
/// whole, and in its producer's order.
#[test]
fn loom_fifo_of_two_producers() {
    model(2, || {
        let queue = Model::new();
        let producers: Vec<_> = [10, 20]
            .into_iter()
            .map(|who| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || (1..=2).filter(|index| queue.push(&[who + index; 2])).count())
            })
            .collect();
        let mut out: Vec<Vec<u8>> = (0..2).filter_map(|_| queue.pop()).collect();
        let pushed: usize = producers.into_iter().map(|producer| producer.join().unwrap()).sum();
        out.extend(std::iter::from_fn(|| queue.pop()));
        assert_eq!(out.len(), pushed, "lost or repeated");
        assert!(out.iter().all(|element| element.len() == 2 && element[0] == element[1]), "torn");
        for who in [10, 20] {
            let own: Vec<u8> = out
                .iter()
                .map(|element| element[0])
                .filter(|first| first / 10 * 10 == who)
                .collect();
            assert!(own.is_sorted_by(|a, b| a < b), "out of order");
        }
    });
}

/// One producer pushes three elements through two slots to two consumers. Each comes out once, and
/// a slot is not filled before it is empty.
#[test]
fn loom_fifo_of_two_consumers() {
    model(2, || {
        let queue = Model::new();
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || (0..2).filter_map(|_| queue.pop()).collect::<Vec<_>>())
            })
            .collect();
        let pushed: Vec<u8> = (1..=3).filter(|index| queue.push(&[*index; 2])).collect();
        let mut out = Vec::new();
        for consumer in consumers {
            let own = consumer.join().unwrap();
            assert!(own.is_sorted_by(|a, b| a[0] < b[0]), "out of order");
            out.extend(own);
        }
        out.extend(std::iter::from_fn(|| queue.pop()));
        out.sort_unstable();
        assert_eq!(out, pushed.into_iter().map(|index| vec![index; 2]).collect::<Vec<_>>());
    });
}
