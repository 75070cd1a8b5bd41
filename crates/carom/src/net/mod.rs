//! The network of one node: sockets, links, paths to the members, and addresses. It imports only
//! status, notices, errors and settings from `shared`, and nothing from other folders.

mod address_book;
mod address_watch;
mod fragments;
pub(crate) mod interfaces;
mod links;
mod multicast_joins;
pub(crate) mod network;
pub(crate) mod paths;
pub(crate) mod receive;
mod routes;
pub(crate) mod seeds;
mod send;
mod sizes;
pub(crate) mod sockets;
mod strangers;
pub(crate) mod udp;
