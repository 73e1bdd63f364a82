//! Unpacks valid and malicious images from every type of source.

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod layouts;
#[cfg(test)]
mod push;
#[cfg(test)]
mod registry;
#[cfg(test)]
mod unpack;
