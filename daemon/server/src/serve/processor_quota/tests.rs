//! Shares of processor time, on given times.

use std::time::Duration;

use patchboard_faults::random::Random;

use super::{BURST, DebtAccount, LENIENCE, OWED_MAX};
use crate::serve::rate_key::RateKey;

fn caller(number: u8) -> RateKey {
    RateKey::Address([10, 0, 0, number].into())
}

#[test]
fn callers_have_no_more_than_their_share() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut account = DebtAccount::new(5.0, BURST, OWED_MAX);
        let (mut now, mut used) = (Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(1000) {
            let by = caller(u8::try_from(random.below(4)).expect("few"));
            match account.wait(by, now) {
                Some(wait) => now += wait,
                None => {
                    let work = Duration::from_millis(1 + random.below(400));
                    account.charge(by, work, now);
                    used += work;
                    now += work;
                }
            }
        }
        let share = used.as_secs_f64() / now.as_secs_f64();
        assert!((0.18..=0.21).contains(&share), "seed {seed}: {share}");
    }
}

#[test]
fn a_caller_who_uses_little_does_not_wait_for_those_who_use_much() {
    let mut account = DebtAccount::new(5.0, BURST, OWED_MAX);
    let second = Duration::from_secs(1);
    account.charge(caller(1), second.mul_f64(0.5), second);
    assert!(account.wait(caller(1), second) > Some(second), "2.5 s are owed");
    assert_eq!(account.wait(caller(2), second), None);
    // Many callers, each with little use, do wait.
    for number in 10..200 {
        account.charge(caller(number), Duration::from_millis(10), second);
    }
    assert!(account.wait(caller(2), second) > Some(second));
    assert_eq!(account.wait(caller(1), second + LENIENCE * 3), None);
}

#[test]
fn processor_debt_is_paid_off_over_time() {
    let mut account = DebtAccount::new(5.0, BURST, OWED_MAX);
    account.charge(caller(1), Duration::from_secs(2), Duration::ZERO);
    let wait = account.wait(caller(1), Duration::ZERO).expect("it waits");
    assert_eq!(wait, Duration::from_secs(10));
    assert_eq!(account.wait(caller(1), wait), None);
    let mut free = DebtAccount::new(0.0, BURST, OWED_MAX);
    free.charge(caller(1), Duration::from_secs(2), Duration::ZERO);
    assert_eq!(free.wait(caller(1), Duration::ZERO), None);
}
