//! Parts that the engines have in common.

mod rtt;

pub(crate) use self::rtt::RttEstimator;
