//! Makes the eBPF program of a device filter. Pure.
//!
//! The kernel passes the program three numbers: the requested access in the upper and the kind of the
//! device in the lower half of the first, then the device's major and minor number. The result 1 allows
//! the access, 0 refuses it.

/// An instruction as in `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u8,
    /// The destination in the lower half, the source in the upper one.
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Block = 1,
    Character = 2,
}

/// A set of kinds of access, with the kernel's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access(i32);

impl Access {
    /// Making a device node.
    pub(super) const MAKE: Self = Self(1);
    pub(super) const READ: Self = Self(2);
    pub(super) const WRITE: Self = Self(4);
    pub(super) const ALL: Self = Self::MAKE.and(Self::READ).and(Self::WRITE);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn bits(self) -> i32 {
        self.0
    }
}

/// Allows access to one device, or to all devices with a major number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) kind: Kind,
    pub(super) major: u32,
    pub(super) minor: Option<u32>,
    pub(super) access: Access,
}

pub(super) const LOAD_WORD: u8 = 0x61;
pub(super) const AND: u8 = 0x54;
pub(super) const SHIFT_RIGHT: u8 = 0x74;
pub(super) const COPY: u8 = 0xbc;
pub(super) const SET: u8 = 0xb4;
pub(super) const JUMP_IF_NOT_EQUAL: u8 = 0x56;
pub(super) const EXIT: u8 = 0x95;

const RESULT: u8 = 0;
/// Has the address of the three numbers, and is free after they are loaded.
const INPUT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// The program that allows what any of the rules allows, and nothing else.
pub(super) fn program(rules: &[Rule]) -> Vec<Instruction> {
    let mut program = vec![
        load(KIND, 0),
        load(ACCESS, 0),
        load(MAJOR, 4),
        load(MINOR, 8),
        with_number(AND, KIND, 0xffff),
        with_number(SHIFT_RIGHT, ACCESS, 16),
    ];
    for rule in rules {
        let mut conditions = vec![skip_unless(KIND, rule.kind as u32)];
        conditions.push(skip_unless(MAJOR, rule.major));
        conditions.extend(rule.minor.map(|minor| skip_unless(MINOR, minor)));
        if rule.access != Access::ALL {
            let others = Access::ALL.bits() & !rule.access.bits();
            conditions.push(copy(INPUT, ACCESS));
            conditions.push(with_number(AND, INPUT, others));
            conditions.push(skip_unless(INPUT, 0));
        }
        conditions.extend(end(1));
        // A condition that does not hold skips the rest of its rule.
        let length = conditions.len();
        for (index, one) in conditions.iter_mut().enumerate() {
            if one.code == JUMP_IF_NOT_EQUAL {
                one.offset = i16::try_from(length - index - 1).expect("a rule is short");
            }
        }
        program.append(&mut conditions);
    }
    program.extend(end(0));
    program
}

/// The offset is set when the length of the rule is known.
fn skip_unless(register: u8, value: u32) -> Instruction {
    with_number(JUMP_IF_NOT_EQUAL, register, value.cast_signed())
}

fn end(result: i32) -> [Instruction; 2] {
    [
        with_number(SET, RESULT, result),
        with_number(EXIT, RESULT, 0),
    ]
}

fn load(register: u8, offset: i16) -> Instruction {
    Instruction {
        code: LOAD_WORD,
        registers: INPUT << 4 | register,
        offset,
        immediate: 0,
    }
}

fn copy(to: u8, from: u8) -> Instruction {
    Instruction {
        code: COPY,
        registers: from << 4 | to,
        offset: 0,
        immediate: 0,
    }
}

fn with_number(code: u8, register: u8, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: register,
        offset: 0,
        immediate,
    }
}
