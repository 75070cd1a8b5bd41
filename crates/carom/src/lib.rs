//! Time-critical reliable multicast.
