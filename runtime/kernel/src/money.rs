//! Money: prices of models and limits of boards, in integers of 10⁻⁹ of one currency.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Units of [`Money`] in one unit of the currency.
const UNITS: f64 = 1e9;

/// Largest amount that a blueprint or a price may name, in units of the currency.
const AMOUNT_MAX: f64 = 9e6;

/// Amount of money in 10⁻⁹ of the currency, serialised as a decimal number of the currency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Money(pub u64);

impl Money {
    /// Converts a decimal number of the currency. Fails if it is negative, not finite, above nine million, or positive
    /// but rounded to zero at nine decimals.
    pub fn from_amount(amount: f64) -> Result<Self, String> {
        if !(0.0..=AMOUNT_MAX).contains(&amount) {
            return Err(format!("an amount of money lies between 0 and {AMOUNT_MAX}"));
        }
        let units = (amount * UNITS).round();
        // Above 2^53 units a float has fewer than nine decimals.
        if amount > 0.0 && units == 0.0 {
            return Err("an amount of money has at most nine decimals".to_owned());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 0 and 9e15")]
        Ok(Self(units as u64))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let decimals = format!("{rest:09}");
        // At least two decimals, as usual for money.
        let length = decimals.trim_end_matches('0').len().max(2);
        write!(f, "{whole}.{}", &decimals[..length])
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[expect(clippy::cast_precision_loss, reason = "at most 9e15")]
        serializer.serialize_f64(self.0 as f64 / UNITS)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_amount(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Price of a model's tokens: 10⁻⁹ of the currency for a million tokens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens of prompts that the provider had not cached.
    pub input: u64,
    /// Tokens of prompts that the provider had cached.
    pub cached: u64,
    /// Tokens of replies.
    pub output: u64,
    /// Currency, like `USD`.
    pub currency: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_written_as_decimals() {
        for (amount, units, text) in [
            (0.0, 0, "0.00"),
            (2.0, 2_000_000_000, "2.00"),
            (0.15, 150_000_000, "0.15"),
            (1.000_000_001, 1_000_000_001, "1.000000001"),
            (8_999_999.5, 8_999_999_500_000_000, "8999999.50"),
        ] {
            let money = Money::from_amount(amount).expect("an amount");
            assert_eq!((money.0, money.to_string().as_str()), (units, text));
            let written = serde_json::to_string(&money).expect("a number");
            assert_eq!(serde_json::from_str::<Money>(&written).expect("a number"), money);
        }
        for wrong in [-0.1, f64::NAN, f64::INFINITY, 9.1e6, 1e-10] {
            assert!(Money::from_amount(wrong).is_err(), "{wrong}");
        }
    }
}
