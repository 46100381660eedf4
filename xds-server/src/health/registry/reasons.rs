//! One copy of a reason for all who give it: a fleet that is well has one reason a hundred thousand times.
//!
//! In: a reason. Out: the same, shared with those who gave it a moment ago. Reasons that hold an address or a time are
//! each their own, so only the last few are compared.

use std::collections::VecDeque;
use std::sync::Arc;

use vitals_prober::outcome::Reason;

/// How many different reasons are remembered.
const KEPT: usize = 16;

/// The last few different reasons.
#[derive(Debug, Default)]
pub(super) struct Reasons(VecDeque<Arc<Reason>>);

impl Reasons {
    /// The one copy of `reason`.
    pub(super) fn shared(&mut self, reason: Reason) -> Arc<Reason> {
        if let Some(known) = self.0.iter().find(|known| ***known == reason) {
            return Arc::clone(known);
        }
        let new = Arc::new(reason);
        self.keep(&new);
        new
    }

    /// Puts the one copy in the place of another.
    pub(super) fn share(&mut self, reason: &mut Option<Arc<Reason>>) {
        let Some(own) = reason else { return };
        match self.0.iter().find(|known| *known == own) {
            Some(known) => *own = Arc::clone(known),
            None => {
                let own = Arc::clone(own);
                self.keep(&own);
            }
        }
    }

    fn keep(&mut self, reason: &Arc<Reason>) {
        self.0.truncate(KEPT - 1);
        self.0.push_front(Arc::clone(reason));
    }
}

#[cfg(test)]
mod tests {
    use vitals_prober::outcome::ReasonCode;

    use super::*;

    #[test]
    fn equal_reasons_are_one_and_only_the_last_few_are_kept() {
        let mut reasons = Reasons::default();
        let of = |text: String| Reason::new(ReasonCode::ResponseOk, text);
        let first = reasons.shared(of("HTTP 200".into()));
        let mut stored = Some(Arc::new(of("HTTP 200".into())));
        reasons.share(&mut stored);
        assert!(Arc::ptr_eq(&first, &stored.unwrap()));
        for n in 0..100 {
            reasons.shared(of(format!("HTTP 200 after {n} ms")));
        }
        assert_eq!(reasons.0.len(), KEPT);
        let again = reasons.shared(of("HTTP 200".into()));
        assert!(!Arc::ptr_eq(&first, &again) && first == again);
    }
}
