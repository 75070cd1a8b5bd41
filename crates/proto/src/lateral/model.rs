//! Analysis of Slingshot (section 3.4): bounds on the probability that repairs recover a lost
//! packet, for any group size, view size, rate-of-fire and loss.
//!
//! A node n has lost a packet. In the paper's notation, X nodes have n in their partial views, Y of
//! them send n a repair that contains the packet, and Z of these repairs arrive:
//!
//! * X is binomial in the *N_G − 1 other nodes* with p_v = C(N_G−2, N_v−2) / C(N_G−1, N_v−1) =
//!   (N_v−1)/(N_G−1), which is 1 for full views. The paper writes N_G as the number of trials. The
//!   packet's sender is one of the N_G − 1 nodes: in algorithm 1, a sender is in its own view. The
//!   formula then gives the figures that the evaluation is compared with: 58.5 to 60.2 % at c = 1
//!   for full views of 64 nodes. With N_G it would give 59.0 to 60.7 %, without the sender 57.9 to
//!   59.6 %.
//! * Y is binomial in X with p_c (1−p), where p_c = C(N_v−2, c−1) / C(N_v−1, c) = c/(N_v−1).
//! * Z is binomial in Y with 1−p.
//!
//! A binomial number of independent trials is again binomial. Z is therefore binomial in N_G − 1
//! with p_v p_c (1−p)² = c (1−p)² / (N_G−1). The view size cancels out, which is why figure 5 of
//! the paper is flat.
//!
//! A repair is useful if its other r−1 packets have arrived, with probability s = (1−p)^(r−1). Z =
//! k ≥ 1 repairs recover the packet with probability s if all have the same contents (lower bound),
//! and with 1 − (1−s)^k if they have no other packet in common (upper bound). The analysis does not
//! cover pending repairs that are solved later.
//!
//! All calculations use basic arithmetic only, so that the results are identical on all machines.
//!
//! ```
//! use carom_proto::RateOfFire;
//! use carom_proto::lateral::model::Setting;
//!
//! let setting =
//!     Setting { group_size: 64, view_size: 64, rate: RateOfFire::new(8, 5), loss: 0.01 };
//! let recovered = setting.recovered()?;
//! assert_eq!(format!("{:.1}", recovered.lower * 100.0), "92.6");
//! assert_eq!(format!("{:.1}", recovered.upper * 100.0), "99.1");
//! assert!((setting.overhead()? - 0.382).abs() < 0.001);
//! # Ok::<(), carom_proto::lateral::model::ModelError>(())
//! ```

use crate::RateOfFire;

/// Parameters of the analysis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Number of nodes in the group, N_G, at least 2.
    pub group_size: u32,
    /// Number of nodes in a view, including its owner: N_v, from 2 to `group_size` (full view).
    pub view_size: u32,
    /// Rate-of-fire (r, c): a repair to c nodes for every r packets. c is less than `view_size`.
    pub rate: RateOfFire,
    /// Probability p that a node drops a packet (data or repair), from 0 to 1.
    pub loss: f64,
}

/// Bounds on the probability that repairs recover a lost packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Lower bound, for which all repairs that contain the packet have the same contents.
    pub lower: f64,
    /// Upper bound, for which the repairs that contain the packet have no other packet in common.
    pub upper: f64,
}

/// Error returned for an invalid [`Setting`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The group has fewer than 2 nodes.
    #[error("group size {0} is invalid: expected at least 2")]
    GroupSize(u32),
    /// The view size is less than 2 or exceeds the size of the group.
    #[error(
        "views of {view_size} nodes are invalid: expected 2 to {group_size}, the size of the group"
    )]
    ViewSize {
        /// Invalid view size.
        view_size: u32,
        /// Size of the group.
        group_size: u32,
    },
    /// The value of r is out of bounds.
    #[error("rate-of-fire {0} is invalid: expected r from 1 to {max}", max = RateOfFire::MAX_R)]
    RateOfFire(RateOfFire),
    /// The value of c exceeds the number of other nodes in the view.
    #[error(
        "c = {c} is too large: expected at most {others} with views of {view_size} nodes",
        others = view_size - 1
    )]
    TooManyTargets {
        /// Requested value of c.
        c: u8,
        /// Size of the view.
        view_size: u32,
    },
    /// The loss is not a probability.
    #[error("loss {0} is invalid: expected a probability from 0 to 1")]
    Loss(f64),
}

impl Setting {
    /// Returns the paper's bounds on the probability that repairs recover a lost packet.
    ///
    /// # Errors
    /// Returns an error if the setting is invalid.
    pub fn recovered(&self) -> Result<Bounds, ModelError> {
        self.validate()?;
        let received = 1.0 - self.loss;
        let others = self.group_size - 1;
        let repair = f64::from(self.rate.c) * received * received / f64::from(others);
        let useful = power(received, u32::from(self.rate.r) - 1);
        Ok(Bounds {
            lower: (1.0 - power(1.0 - repair, others)) * useful,
            upper: 1.0 - power(1.0 - repair * useful, others),
        })
    }

    /// Returns the share of repairs among all packets sent to a node. The share is c(1−p) / (r +
    /// c(1−p)), from the ratio of repairs to data in section 3.2.
    ///
    /// # Errors
    /// Returns an error if the setting is invalid.
    pub fn overhead(&self) -> Result<f64, ModelError> {
        self.validate()?;
        let repairs = f64::from(self.rate.c) * (1.0 - self.loss);
        Ok(repairs / (f64::from(self.rate.r) + repairs))
    }

    fn validate(&self) -> Result<(), ModelError> {
        let Self { group_size, view_size, rate, loss } = *self;
        if group_size < 2 {
            return Err(ModelError::GroupSize(group_size));
        }
        if !(2..=group_size).contains(&view_size) {
            return Err(ModelError::ViewSize { view_size, group_size });
        }
        if rate.validate().is_err() {
            return Err(ModelError::RateOfFire(rate));
        }
        if u32::from(rate.c) > view_size - 1 {
            return Err(ModelError::TooManyTargets { c: rate.c, view_size });
        }
        if !(0.0..=1.0).contains(&loss) {
            return Err(ModelError::Loss(loss));
        }
        Ok(())
    }
}

/// Returns `base` to the power of `exponent`. The result of `f64::powi` differs between platforms.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            product *= base;
        }
        base *= base;
        exponent /= 2;
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn setting(group_size: u32, view_size: u32, (r, c): (u8, u8), loss: f64) -> Setting {
        Setting { group_size, view_size, rate: RateOfFire::new(r, c), loss }
    }

    #[test]
    fn full_views_of_64_nodes_have_the_bounds_of_the_evaluation() {
        let golden = [
            (1, 58.5, 60.2),
            (2, 80.5, 84.3),
            (3, 88.6, 93.9),
            (4, 91.6, 97.7),
            (5, 92.6, 99.1),
            (8, 93.2, 100.0),
        ];
        for (c, lower, upper) in golden {
            let bounds = setting(64, 64, (8, c), 0.01).recovered().expect("the setting is valid");
            assert!((bounds.lower * 100.0 - lower).abs() <= 0.05, "c = {c}: {bounds:?}");
            assert!((bounds.upper * 100.0 - upper).abs() <= 0.05, "c = {c}: {bounds:?}");
        }
    }

    /// Section 3.4 as printed: three nested sums over binomial probabilities.
    fn as_printed(setting: &Setting) -> Bounds {
        let choose = |n: u32, k: u32| {
            (0..k).fold(1.0, |product, i| product * f64::from(n - i) / f64::from(i + 1))
        };
        let binomial = |n: u32, p: f64, k: u32| choose(n, k) * power(p, k) * power(1.0 - p, n - k);
        let Setting { group_size, view_size, rate, loss } = *setting;
        let others = group_size - 1;
        let in_view = choose(group_size - 2, view_size - 2) / choose(others, view_size - 1);
        let c = u32::from(rate.c);
        let chosen = choose(view_size - 2, c - 1) / choose(view_size - 1, c);
        let useful = power(1.0 - loss, u32::from(rate.r) - 1);
        let mut bounds = Bounds { lower: 0.0, upper: 0.0 };
        for i in 0..=others {
            for j in 0..=i {
                for k in 1..=j {
                    let weight = binomial(others, in_view, i)
                        * binomial(i, chosen * (1.0 - loss), j)
                        * binomial(j, 1.0 - loss, k);
                    bounds.lower += weight * useful;
                    bounds.upper += weight * (1.0 - power(1.0 - useful, k));
                }
            }
        }
        bounds
    }

    #[test]
    fn closed_form_equals_the_papers_sum_for_every_view_size() {
        for (group_size, view_size) in [(2, 2), (12, 4), (12, 12), (20, 7)] {
            for (r, c, loss) in [(8, 1, 0.01), (3, 1, 0.2), (8, 3, 0.05)] {
                if u32::from(c) < view_size {
                    let setting = setting(group_size, view_size, (r, c), loss);
                    let (ours, sum) = (setting.recovered().expect("valid"), as_printed(&setting));
                    assert!((ours.lower - sum.lower).abs() < 1e-9, "{setting:?}: {sum:?}");
                    assert!((ours.upper - sum.upper).abs() < 1e-9, "{setting:?}: {sum:?}");
                }
            }
        }
    }

    #[test]
    fn settings_that_cannot_be_are_refused_with_the_reason() {
        let refused =
            |setting: Setting| setting.recovered().expect_err("the setting is invalid").to_string();
        assert!(refused(setting(1, 1, (8, 1), 0.01)).contains("group size 1"));
        assert!(refused(setting(8, 9, (8, 1), 0.01)).contains("views of 9 nodes"));
        assert!(refused(setting(8, 4, (8, 4), 0.01)).contains("at most 3 with views"));
        assert!(refused(setting(8, 4, (0, 1), 0.01)).contains("rate-of-fire"));
        assert!(refused(setting(8, 4, (8, 1), f64::NAN)).contains("a probability"));
        assert_eq!(setting(8, 8, (8, 5), 1.5).overhead(), Err(ModelError::Loss(1.5)));
    }

    proptest! {
        #[test]
        fn bounds_are_ordered_probabilities_that_grow_with_c(
            (c, view_size) in (0..40_u8).prop_flat_map(|c| (Just(c), u32::from(c) + 2..400)),
            outside in 0..400_u32, r in 1..=32_u8, loss in 0.0..=1.0,
        ) {
            let group_size = view_size + outside;
            let of = |c| setting(group_size, view_size, (r, c), loss).recovered().expect("valid");
            let (bounds, more) = (of(c), of(c + 1));
            prop_assert!(0.0 <= bounds.lower && bounds.lower <= bounds.upper + 1e-12);
            prop_assert!(bounds.upper <= 1.0);
            prop_assert!(bounds.lower <= more.lower + 1e-12 && bounds.upper <= more.upper + 1e-12);
        }
    }
}
