//! Parts that the engines share.

mod rtt;

pub(crate) use self::rtt::RttEstimator;
