//! Which mediated devices to make and to remove. Pure.
//!
//! The UUID of a device follows from its card, its type and its number. So it means the same after a reboot, and the
//! devices that virt-handler made are known without a record of them. Other devices are never removed, and a card
//! that has one is left to the program that made it.

use std::collections::BTreeMap;

use model::MediatedUuid;
use sha2::{Digest as _, Sha256};

use super::wanted::Types;

/// The most devices of a type that a card can have.
const MAX_DEVICES: u32 = 256;

/// A device that mediated devices are parts of, such as a graphics card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Card {
    /// The name of its directory.
    pub(super) name: String,
    pub(super) types: Vec<Type>,
}

/// A type of devices that a card can be divided into.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Type {
    /// The name of its directory, unique on a node's cards of a kind.
    pub(super) id: String,
    /// The name that its driver gives, with `_` for blanks; some give none.
    pub(super) name: Option<String>,
    /// How many more devices of it the card could have.
    pub(super) available: u32,
    /// The devices that the card has.
    pub(super) devices: Vec<MediatedUuid>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Create {
        card: String,
        kind: String,
        uuid: MediatedUuid,
    },
    /// Not if a guest has it.
    Remove { uuid: MediatedUuid },
}

/// The steps of one pass. Once a device is removed, its card may be divided otherwise: in the next pass.
///
/// A card gets devices of one type, as many as it can have. The wanted types take turns.
pub(super) fn plan(cards: &[Card], wanted: &Types) -> Vec<Step> {
    let mut steps = Vec::new();
    // How many cards have devices of each wanted type.
    let mut shares: BTreeMap<usize, usize> = BTreeMap::new();
    let mut free = Vec::new();
    for card in cards {
        match occupation(card, wanted) {
            Occupation::Others => {}
            Occupation::Outdated(devices) => {
                steps.extend(devices.into_iter().map(|uuid| Step::Remove { uuid }));
            }
            Occupation::Divided(kind, position) => {
                *shares.entry(position).or_default() += 1;
                steps.extend(creations(card, kind));
            }
            Occupation::Free => free.push(card),
        }
    }
    for card in free {
        let possible = card.types.iter().filter(|kind| kind.available > 0);
        let possible = possible.filter_map(|kind| Some((position(kind, &wanted.made)?, kind)));
        let next =
            possible.min_by_key(|(place, _)| (shares.get(place).copied().unwrap_or(0), *place));
        if let Some((position, kind)) = next {
            *shares.entry(position).or_default() += 1;
            steps.extend(creations(card, kind));
        }
    }
    steps
}

/// The devices of a card.
enum Occupation<'a> {
    Free,
    /// Some are of another program, or of a type that another program offers.
    Others,
    /// Ours of types that are not wanted any more.
    Outdated(Vec<MediatedUuid>),
    /// Ours of a wanted type, with its position among these. There may be room for more: the last pass was cut off.
    Divided(&'a Type, usize),
}

fn occupation<'a>(card: &'a Card, wanted: &Types) -> Occupation<'a> {
    let mut outdated = Vec::new();
    let mut divided = None;
    for kind in card.types.iter().filter(|kind| !kind.devices.is_empty()) {
        let ours: Vec<MediatedUuid> = (0..MAX_DEVICES)
            .map(|number| uuid(&card.name, &kind.id, number))
            .collect();
        let are_ours = kind.devices.iter().all(|device| ours.contains(device));
        if !are_ours || position(kind, &wanted.kept).is_some() {
            return Occupation::Others;
        }
        match position(kind, &wanted.made) {
            Some(position) => divided = divided.or(Some((kind, position))),
            None => outdated.extend(&kind.devices),
        }
    }
    match divided {
        _ if !outdated.is_empty() => Occupation::Outdated(outdated),
        Some((kind, position)) => Occupation::Divided(kind, position),
        None => Occupation::Free,
    }
}

/// Where the type is in a list of names.
fn position(kind: &Type, names: &[String]) -> Option<usize> {
    let is_named = |name: &String| *name == kind.id || Some(name) == kind.name.as_ref();
    names.iter().position(is_named)
}

fn creations(card: &Card, kind: &Type) -> Vec<Step> {
    let numbers = (0..MAX_DEVICES).map(|number| uuid(&card.name, &kind.id, number));
    let unused = numbers.filter(|uuid| !kind.devices.contains(uuid));
    let available = usize::try_from(kind.available).unwrap_or(usize::MAX);
    unused
        .take(available)
        .map(|uuid| Step::Create {
            card: card.name.clone(),
            kind: kind.id.clone(),
            uuid,
        })
        .collect()
}

/// The UUID of a device of ours.
fn uuid(card: &str, kind: &str, number: u32) -> MediatedUuid {
    let digest = Sha256::digest(format!("mediated device {number} of {kind} on {card}"));
    let mut bytes: [u8; 16] = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    // A UUID of version 8: made by an application's own rule.
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    MediatedUuid::of(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(id: &str, available: u32, devices: &[MediatedUuid]) -> Type {
        Type {
            id: id.to_owned(),
            name: Some(format!("name_{id}")),
            available,
            devices: devices.to_vec(),
        }
    }

    fn card(name: &str, types: Vec<Type>) -> Card {
        Card {
            name: name.to_owned(),
            types,
        }
    }

    fn types(made: &[&str]) -> Types {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Types {
            made: owned(made),
            kept: owned(&["kept"]),
        }
    }

    /// Each step in short; devices of ours by their number.
    fn described(steps: &[Step]) -> Vec<String> {
        let describe = |step: &Step| match step {
            Step::Create { card, kind, uuid } => {
                let number =
                    (0..MAX_DEVICES).find(|number| *uuid == self::uuid(card, kind, *number));
                format!("+{card}/{kind}/{}", number.expect("a device of ours"))
            }
            Step::Remove { uuid } => format!("-{uuid}"),
        };
        steps.iter().map(describe).collect()
    }

    #[test]
    fn wanted_types_take_turns_on_free_cards() {
        let both = |name: &str| card(name, vec![kind("a", 2, &[]), kind("b", 1, &[])]);
        let only_b = card("c2", vec![kind("b", 1, &[]), kind("c", 4, &[])]);
        for (cards, made, expected) in [
            (vec![], vec!["a"], vec![]),
            (vec![both("c1")], vec![], vec![]),
            (vec![both("c1")], vec!["other"], vec![]),
            // By the name of its directory, or by its own.
            (vec![both("c1")], vec!["a"], vec!["+c1/a/0", "+c1/a/1"]),
            (vec![both("c1")], vec!["name_b"], vec!["+c1/b/0"]),
            (
                vec![both("c1"), both("c2"), both("c3")],
                vec!["b", "a"],
                vec!["+c1/b/0", "+c2/a/0", "+c2/a/1", "+c3/b/0"],
            ),
            // A card that has no type in turn.
            (
                vec![both("c1"), only_b.clone(), both("c3")],
                vec!["b", "a"],
                vec!["+c1/b/0", "+c2/b/0", "+c3/a/0", "+c3/a/1"],
            ),
            (
                vec![card("c1", vec![kind("a", 0, &[]), kind("b", 1, &[])])],
                vec!["a", "b"],
                vec!["+c1/b/0"],
            ),
        ] {
            let steps = plan(&cards, &types(&made));
            assert_eq!(described(&steps), expected, "{made:?}");
        }
    }

    #[test]
    fn devices_of_ours_are_completed_kept_and_removed() {
        let ours = |number| uuid("c1", "a", number);
        let foreign = MediatedUuid::parse("aa618089-8b16-4d01-a136-25a0f3c73123").expect("valid");
        let with = |devices: &[MediatedUuid]| {
            let types = vec![kind("a", 1, devices), kind("b", 1, &[])];
            vec![
                card("c1", types),
                card("c2", vec![kind("a", 1, &[]), kind("b", 1, &[])]),
            ]
        };
        let removal = format!("-{}", ours(1));
        for (cards, made, expected) in [
            // A pass was cut off after the second device; the other card gets the other type.
            (with(&[ours(1)]), vec!["a", "b"], vec!["+c1/a/0", "+c2/b/0"]),
            (with(&[ours(1)]), vec!["b"], vec![&*removal, "+c2/b/0"]),
            (with(&[ours(1)]), vec![], vec![&*removal]),
            // Others made it, on a card that is theirs then.
            (with(&[foreign]), vec![], vec![]),
            (with(&[foreign]), vec!["a"], vec!["+c2/a/0"]),
            (with(&[ours(1), foreign]), vec!["b"], vec!["+c2/b/0"]),
        ] {
            let steps = plan(&cards, &types(&made));
            assert_eq!(described(&steps), expected, "{made:?}");
        }
        // Another program offers the devices of this type by now.
        let device = uuid("c1", "kept", 0);
        let cards = [card("c1", vec![kind("kept", 1, &[device])])];
        assert!(plan(&cards, &types(&[])).is_empty());
    }

    #[test]
    fn a_card_that_promises_too_much_is_divided_into_few_devices() {
        let cards = [card("c1", vec![kind("a", u32::MAX, &[])])];
        assert_eq!(plan(&cards, &types(&["a"])).len(), 256);
    }
}
