//! Runs the program as the kernel does, for many devices and kinds of access.

use std::path::PathBuf;

use super::{
    program::{
        AND, COPY, EXIT, Instruction, JUMP_IF_NOT_EQUAL, LOAD_WORD, SET, SHIFT_RIGHT, program,
    },
    *,
};
use crate::model::Device;

/// Whether the program allows the access. The input is what the kernel passes.
fn allows(program: &[Instruction], input: [u32; 3]) -> bool {
    let mut registers = [0_u32; 11];
    let mut at = 0;
    loop {
        let one = program[at];
        at += 1;
        let (to, from) = (
            usize::from(one.registers & 15),
            usize::from(one.registers >> 4),
        );
        let number = one.immediate.cast_unsigned();
        match one.code {
            LOAD_WORD => {
                assert_eq!(from, 1, "only the first register has an address");
                registers[to] = input[usize::try_from(one.offset).unwrap() / 4];
            }
            AND => registers[to] &= number,
            SHIFT_RIGHT => registers[to] >>= number,
            COPY => registers[to] = registers[from],
            SET => registers[to] = number,
            JUMP_IF_NOT_EQUAL => {
                if registers[to] != number {
                    at += usize::try_from(one.offset).unwrap();
                }
            }
            EXIT => return registers[0] == 1,
            other => panic!("the kernel has no instruction {other:#x} in this program"),
        }
    }
}

fn device(mode: u32) -> Device {
    Device {
        host_path: PathBuf::new(),
        path: PathBuf::new(),
        mode,
        uid: 0,
        gid: 0,
    }
}

const MAKE: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const BLOCK: u32 = 1;
const CHARACTER: u32 = 2;

#[test]
fn only_the_devices_of_a_container_can_be_used() {
    let (writable, read_only) = (device(0o660), device(0o440));
    let node = |device, kind, major, minor| Node {
        device,
        kind,
        major,
        minor,
    };
    let nodes = [
        node(&writable, "c", 10, 232),
        node(&read_only, "b", 7, 300),
        node(&writable, "b", 259, 1_048_575),
    ];
    let program = program(&rules(&nodes));
    // The device, and which access of it is allowed.
    for (kind, major, minor, allowed) in [
        (CHARACTER, 1, 3, MAKE | READ | WRITE),
        (CHARACTER, 1, 5, MAKE | READ | WRITE),
        (CHARACTER, 1, 7, MAKE | READ | WRITE),
        (CHARACTER, 1, 8, MAKE | READ | WRITE),
        (CHARACTER, 1, 9, MAKE | READ | WRITE),
        (CHARACTER, 5, 0, MAKE | READ | WRITE),
        (CHARACTER, 5, 1, MAKE | READ | WRITE),
        (CHARACTER, 5, 2, MAKE | READ | WRITE),
        (CHARACTER, 136, 0, MAKE | READ | WRITE),
        (CHARACTER, 136, 1_048_575, MAKE | READ | WRITE),
        (CHARACTER, 10, 232, MAKE | READ | WRITE),
        (BLOCK, 7, 300, MAKE | READ),
        (BLOCK, 259, 1_048_575, MAKE | READ | WRITE),
        // Memory, kernel messages, a disk; neighbours of what is allowed; the other kind.
        (CHARACTER, 1, 1, 0),
        (CHARACTER, 1, 2, 0),
        (CHARACTER, 1, 4, 0),
        (CHARACTER, 1, 11, 0),
        (CHARACTER, 5, 3, 0),
        (CHARACTER, 135, 0, 0),
        (CHARACTER, 137, 0, 0),
        (CHARACTER, 10, 200, 0),
        (CHARACTER, 10, 231, 0),
        (CHARACTER, 7, 300, 0),
        (BLOCK, 8, 0, 0),
        (BLOCK, 254, 0, 0),
        (BLOCK, 1, 3, 0),
        (BLOCK, 136, 0, 0),
        (BLOCK, 10, 232, 0),
        (BLOCK, 7, 44, 0),
        (BLOCK, 259, 0, 0),
        (0, 0, 0, 0),
        (3, 1, 3, 0),
    ] {
        for access in 1..=7 {
            assert_eq!(
                allows(&program, [access << 16 | kind, major, minor]),
                access & !allowed == 0,
                "kind {kind}, {major}:{minor}, access {access:#05b}"
            );
        }
    }
}

#[test]
fn container_without_devices_has_the_usual_ones() {
    let program = program(&rules(&[]));
    assert!(allows(&program, [READ << 16 | CHARACTER, 1, 3]));
    assert!(!allows(&program, [READ << 16 | CHARACTER, 10, 232]));
    assert!(!allows(&program, [READ << 16 | BLOCK, 254, 0]));
}
