//! Memory of this node and of others: regions, kinds of elements, operations on remote memory.

pub mod region;

pub mod kinds;

pub mod remote;
