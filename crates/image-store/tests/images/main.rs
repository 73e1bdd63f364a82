//! Images from every kind of source, honest and hostile, into trees.

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
