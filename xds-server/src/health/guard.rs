//! When a vantage is doubted: one [`Doubt`] per vantage and guard policy (semantics V5). Pure.
//!
//! In: the turns of the vantage's votes, whether its canaries answer, whether another vantage agrees, the time. Out: an
//! [`Event`] when it starts and when it ends to abstain. While it abstains its votes do not count.
//!
//! ```text
//!               more than maxShare turned within the window, in ≥ 2 groups, and no other vantage agrees;
//!               or no canary answers by its verdict; at a turn, by its latest probe
//!   TRUSTED ─────────────────────────────────────────────────────────────────────────────► ABSTAINS
//!      ▲                                                                                       │
//!      └── share below maxShare / 2 and a canary answers │ another agrees │ maxHold is over ◄──┘
//! ```
//!
//! **What is counted.** Endpoints of all services whose guard policy is equal form one pool: they are unrelated but for
//! the vantage that looks at them. An endpoint counts as turned when the vantage's vote went from healthy to not (or its
//! first vote says so of an endpoint that is served as healthy) within the window, and has not come back since. The
//! share is of all endpoints of the pool that the vantage judges.
//!
//! **The window** is the longest `unhealthyThreshold · interval + timeout` of the pool's checks. With each endpoint's
//! own, the fast ones of a lost network would have left the count before the slow ones turn, and a pool of both would
//! never trip.
//!
//! **Canaries.** They are asked to tell a vantage that is cut off from endpoints that are down, and must be quicker than the
//! checks: so when an endpoint turns, the latest probe of each is what counts, below its threshold too. A canary that has
//! never answered since it was configured (an address mistyped, a port that nobody opens) says nothing of a network, and
//! is left out until it has answered once; that it does not is told ([`Unanswered`]).
//!
//! **What was published before it trips.** Turns come one by one, and up to `maxShare` of them are published before the
//! doubt arises. They are undone then: those endpoints go back to the status that they had before the window, wherever
//! the votes that are left are too few to decide (V3). The vantage is doubted as a whole, and the turns that made it
//! suspicious are the least credible of all that it says; to keep them would leave half of a fleet out of rotation for
//! as long as the vantage has no network, which is what the guard is against. The price: when that many endpoints of
//! several groups really fail at once and a single vantage looks, they are served for up to `maxHold`, as are those that
//! fail meanwhile. A second vantage, which agrees, ends that at once; `guard: {enabled: false}` does too.
//!
//! **While it abstains** nothing leaves the count by age, because the share would else fall by itself: only endpoints
//! that the vantage finds healthy again do.
//!
//! **Across a restart** nothing of a doubt is stored. What the vantage finds unhealthy while the fleet is told that it is
//! healthy shows that there was one, and it goes on ([`Doubt::resume`]), with a new `maxHold`; silent canaries are
//! looked at before anything is published, and until each canary has been tried once, no vote turns an endpoint that is
//! served as healthy. Turns that were published before the restart count no more.
//!
//! **What is believed is not counted again.** When another vantage agrees or `maxHold` is over, the turns so far are
//! believed and forgotten, and canaries that are still silent are disregarded until one has answered. So a doubt does
//! not start again on what has ended it.

mod event;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vitals_prober::target::StateKey;

pub use self::event::{Abstention, Cause, End, Event, Unanswered, Word};
use super::Now;
use super::quorum::share_of;
use crate::model::{Guard, Name};

/// An endpoint's turn from healthy.
#[derive(Clone, Debug)]
struct Turn {
    serial: u64,
    groups: Box<[Name]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Canaries {
    /// There are none, or one answers.
    Fine,
    /// None answers.
    Silent,
    /// None answers, and that is disregarded until one does.
    Disregarded,
}

/// The state of one vantage under one policy.
#[derive(Clone, Debug)]
pub struct Doubt {
    vantage: Arc<str>,
    policy: Guard,
    window: Duration,
    /// Endpoints that the vantage judges.
    total: usize,
    turned: HashMap<StateKey, Turn>,
    /// The turns in their order, by when and serial; one that no longer is in `turned` has come back.
    order: VecDeque<(Instant, u64, StateKey)>,
    next_serial: u64,
    /// How many of `turned` are in each group.
    groups: BTreeMap<Name, usize>,
    canaries: Canaries,
    /// No turn is older.
    born: Instant,
    /// Since when it abstains, and why.
    holding: Option<(Instant, Arc<Abstention>)>,
}

impl Doubt {
    /// A vantage that is trusted, and judges nothing yet.
    #[must_use]
    pub fn new(vantage: Arc<str>, policy: Guard, now: Now) -> Self {
        Self {
            vantage,
            policy,
            window: Duration::ZERO,
            total: 0,
            turned: HashMap::new(),
            order: VecDeque::new(),
            next_serial: 0,
            groups: BTreeMap::new(),
            canaries: Canaries::Fine,
            born: now.mono,
            holding: None,
        }
    }

    /// What the vantage judges under the policy now: so many endpoints, whose checks' longest window is this. What it
    /// judges no more is forgotten.
    pub fn set_scope(
        &mut self,
        total: usize,
        window: Duration,
        judges: impl Fn(&StateKey) -> bool,
    ) {
        self.total = total;
        self.window = window;
        let gone: Vec<StateKey> = self
            .turned
            .keys()
            .filter(|key| !judges(key))
            .copied()
            .collect();
        for key in gone {
            self.forget(&key);
        }
    }

    /// Its abstention, while it abstains.
    #[must_use]
    pub fn abstention(&self) -> Option<&Arc<Abstention>> {
        self.holding.as_ref().map(|(_, abstention)| abstention)
    }

    /// Its vote on `key`, an endpoint of these groups, went from healthy to not. `agrees` is asked at most once, when the
    /// vantage would be doubted: whether another one finds most of those that turned unhealthy too.
    pub fn turn(
        &mut self,
        key: StateKey,
        groups: Box<[Name]>,
        now: Now,
        agrees: impl FnOnce(&Self) -> bool,
    ) -> Option<Event> {
        self.forget(&key);
        for group in &groups {
            *self.groups.entry(group.clone()).or_default() += 1;
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.turned.insert(key, Turn { serial, groups });
        self.order.push_back((now.mono, serial, key));
        self.compact();
        if !self.policy.enabled || self.holding.is_some() {
            return None;
        }
        self.age(now);
        if !self.is_too_much() {
            return None;
        }
        if agrees(self) {
            self.believe();
            return None;
        }
        Some(self.start(self.turned_too_many(), now))
    }

    /// What the vantage was found to have turned when it came to be watched here, after a restart or under an edited
    /// policy, was kept from the fleet by a doubt. That goes on, down to the share at which it would have ended.
    pub fn resume(&mut self, now: Now) -> Option<Event> {
        let goes_on = self.policy.enabled
            && self.holding.is_none()
            && self.total >= self.policy.min_endpoints as usize
            && !self.is_recovered();
        goes_on.then(|| self.start(self.turned_too_many(), now))
    }

    /// Its vote on `key` is healthy again.
    pub fn recover(&mut self, key: &StateKey) -> Option<Event> {
        self.forget(key);
        self.end_if_recovered()
    }

    /// What its canaries say. `at_turn`: an endpoint has just turned from healthy; then the latest probe of each is enough.
    pub fn canaries(&mut self, word: Word, at_turn: bool, now: Now) -> Option<Event> {
        let silent = match word {
            Word::Answer => {
                self.canaries = Canaries::Fine;
                return self.end_if_recovered();
            }
            Word::Failing(of) if at_turn => of,
            Word::Silent(of) => of,
            Word::Failing(_) | Word::Unclear => return None,
        };
        if self.canaries == Canaries::Disregarded {
            return None;
        }
        self.canaries = Canaries::Silent;
        if !self.policy.enabled || self.holding.is_some() {
            return None;
        }
        Some(self.start(Cause::Canaries { of: silent }, now))
    }

    /// Lets time pass. `agrees` is asked while the vantage abstains and something has turned.
    pub fn tick(&mut self, now: Now, agrees: impl FnOnce(&Self) -> bool) -> Option<Event> {
        let Some((since, _)) = &self.holding else {
            self.age(now);
            return None;
        };
        if now.mono.saturating_duration_since(*since) >= self.policy.max_hold {
            return self.end(End::HoldOver);
        }
        if !self.turned.is_empty() && agrees(self) {
            return self.end(End::Agreed);
        }
        self.end_if_recovered()
    }

    /// Ends an abstention because the vantage or the policy is gone, and forgets all turns.
    pub fn dissolve(&mut self) -> Option<Event> {
        self.canaries = Canaries::Fine;
        let event = self.end(End::Gone);
        self.believe();
        event
    }

    /// Whether none of its canaries answers.
    #[must_use]
    pub fn has_silent_canaries(&self) -> bool {
        matches!(self.canaries, Canaries::Silent | Canaries::Disregarded)
    }

    /// The endpoints that turned and have not come back.
    pub fn suspects(&self) -> impl ExactSizeIterator<Item = &StateKey> {
        self.turned.keys()
    }

    fn is_too_much(&self) -> bool {
        self.total >= self.policy.min_endpoints as usize
            && self.groups.len() >= 2
            && share_of(self.turned.len(), self.total) > self.policy.max_share
    }

    fn turned_too_many(&self) -> Cause {
        Cause::Turned {
            turned: self.turned.len(),
            of: self.total,
            groups: self.groups.len(),
            window: self.window,
        }
    }

    fn start(&mut self, cause: Cause, now: Now) -> Event {
        let abstention = Arc::new(Abstention {
            vantage: Arc::clone(&self.vantage),
            since: now.wall,
            cause,
            undone: (
                now.mono.checked_sub(self.window).unwrap_or(self.born),
                now.mono,
            ),
        });
        self.holding = Some((now.mono, Arc::clone(&abstention)));
        Event::Started(abstention)
    }

    /// Whether the share of turned endpoints is one at which a doubt ends.
    fn is_recovered(&self) -> bool {
        let share = share_of(self.turned.len(), self.total);
        self.turned.is_empty() || share < self.policy.max_share / 2.0
    }

    fn end_if_recovered(&mut self) -> Option<Event> {
        if self.is_recovered() && self.canaries != Canaries::Silent {
            return self.end(End::Recovered {
                turned: self.turned.len(),
                of: self.total,
            });
        }
        None
    }

    fn end(&mut self, why: End) -> Option<Event> {
        let (_, abstention) = self.holding.take()?;
        match why {
            End::Agreed | End::HoldOver => self.believe(),
            End::Recovered { .. } | End::Gone => {}
        }
        Some(Event::Ended(abstention, why))
    }

    /// What has happened so far is no reason for doubt any more.
    fn believe(&mut self) {
        self.turned.clear();
        self.order.clear();
        self.groups.clear();
        if self.canaries == Canaries::Silent {
            self.canaries = Canaries::Disregarded;
        }
    }

    /// Turns that are older than the window leave the count.
    fn age(&mut self, now: Now) {
        while let Some((at, serial, key)) = self.order.front().copied() {
            if now.mono.saturating_duration_since(at) <= self.window {
                break;
            }
            self.order.pop_front();
            if is_current(&self.turned, serial, &key) {
                self.forget(&key);
            }
        }
    }

    fn forget(&mut self, key: &StateKey) {
        let Some(turn) = self.turned.remove(key) else {
            return;
        };
        for group in &turn.groups {
            if let Some(count) = self.groups.get_mut(group) {
                *count -= 1;
                if *count == 0 {
                    self.groups.remove(group);
                }
            }
        }
    }

    /// Keeps `order` in proportion to what it orders, however often endpoints come and go while nothing ages.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.turned.len() + 64 {
            let turned = &self.turned;
            self.order
                .retain(|(_, serial, key)| is_current(turned, *serial, key));
        }
    }
}

fn is_current(turned: &HashMap<StateKey, Turn>, serial: u64, key: &StateKey) -> bool {
    turned.get(key).is_some_and(|turn| turn.serial == serial)
}

#[cfg(test)]
mod tests;
