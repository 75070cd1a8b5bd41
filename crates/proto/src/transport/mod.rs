mod rtt;

pub(crate) use self::rtt::RttEstimator;
