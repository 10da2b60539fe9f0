pub(crate) mod doing;
pub(crate) mod failure;
