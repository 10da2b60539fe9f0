//! Calls of collectives by this node's threads (COH-6).

use crate::coherence::base::Base;
use crate::coherence::gathering::agreement::{Call, Declared, REDUCE_MAX};
use crate::coherence::gathering::state::Collectives;
use crate::coherence::pages::array::Array;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::table::Arrays;
use crate::coherence::types::{CoherenceError, Declaration, Reduction};
use crate::wind::Token;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

impl Collectives {
    /// Declares an array together with all other nodes, and returns its number.
    pub fn declare(
        &mut self,
        declaration: Declaration,
        token: Token,
        base: &mut Base<'_>,
    ) -> ArrayId {
        let (me, nodes) = (base.mail.me, base.mail.nodes);
        let replaces = declaration.replaces.as_ref().map(|replaces| replaces.array);
        let problem = match base.arrays.has_name(&declaration.name, replaces) {
            true => Some("an array of that name exists already".into()),
            false => declaration.problem(nodes),
        };
        if let Some(problem) = problem {
            let problem = format!("declare array \"{}\": {problem}", declaration.name);
            return self.declare_unfit(problem, token, base.arrays);
        }
        let call = Call::Declare(Box::new(Declared::new(base.arrays.next(), &declaration)));
        self.call(call, token);
        base.arrays.add(Some(Array::new(declaration, me, nodes)))
    }

    /// Takes this node's part in a declaration that it cannot join. It uses up a number, as every
    /// declaration does.
    pub fn declare_unfit(&mut self, problem: String, token: Token, arrays: &mut Arrays) -> ArrayId {
        self.call(Call::Unfit(problem), token);
        arrays.add(None)
    }

    /// Frees an array that all nodes have dropped, or drop by this call.
    pub fn free(&mut self, array: ArrayId, token: Token, base: &mut Base<'_>) {
        let Some(known) = base.arrays.get(array) else {
            let doing = String::from("free");
            return base.mail.fail(token, CoherenceError::UnknownArray { doing, array });
        };
        let call = Call::Free { number: array, name: known.name.clone() };
        self.call(call, token);
    }

    /// Combines one vector of each node.
    pub fn reduce(&mut self, reduction: Reduction, token: Token) {
        let count = reduction.values.len();
        let call = if count <= REDUCE_MAX {
            Call::Reduce(reduction)
        } else {
            Call::Unfit(format!(
                "barrier_reduce of {count} values at once, the limit is {REDUCE_MAX}; pass fewer in each call"
            ))
        };
        self.call(call, token);
    }
}
