//! Reads the names of a SPIR-V module's resources, and the offsets of their members.

use std::collections::HashMap;

/// A uniform block, or a buffer, texture or sampler (without members).
pub struct Resource {
    pub name: String,
    pub binding: u32,
    /// Name and offset of each member of a uniform block.
    pub members: Vec<(String, usize)>,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Uniform,
    Storage,
    Texture,
    Sampler,
}

fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes the vertex input `viewID` the view's index. glslang has no HLSL semantic for it, and takes
/// it for a vertex attribute.
pub fn multiview(code: &mut Vec<u32>) {
    const MULTIVIEW: u32 = 4439; // capability of SPV_KHR_multiview
    const VIEW_INDEX: u32 = 4440; // its built-in
    let mut view = None;
    let mut capabilities = 5;
    let mut at = 5;
    while at < code.len() {
        let (length, op) = ((code[at] >> 16) as usize, code[at] & 0xffff);
        match op {
            17 => capabilities = at + length,
            5 if text(&code[at + 2..at + length]) == "input.viewID" => view = Some(code[at + 1]),
            71 if Some(code[at + 1]) == view && code[at + 2] == 30 => {
                (code[at + 2], code[at + 3]) = (11, VIEW_INDEX); // Location to BuiltIn
            }
            _ => {}
        }
        at += length;
    }
    if view.is_some() {
        let name: Vec<u32> =
            b"SPV_KHR_multiview\0\0\0".chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        let extension = std::iter::once((name.len() as u32 + 1) << 16 | 10).chain(name);
        code.splice(capabilities..capabilities, [2 << 16 | 17, MULTIVIEW].into_iter().chain(extension));
    }
}

/// The resources of a module with their names and bindings.
pub fn resources(code: &[u32]) -> Vec<Resource> {
    let mut names: HashMap<u32, String> = HashMap::new();
    let mut member_names: HashMap<(u32, u32), String> = HashMap::new();
    let mut offsets: HashMap<(u32, u32), usize> = HashMap::new();
    let mut bindings: HashMap<u32, u32> = HashMap::new();
    let mut buffer_blocks: Vec<u32> = Vec::new();
    let mut samplers: Vec<u32> = Vec::new();
    let mut pointers: HashMap<u32, u32> = HashMap::new();
    let mut structs: Vec<u32> = Vec::new();
    let mut variables: Vec<(u32, u32, u32)> = Vec::new();
    let mut at = 5;
    while at < code.len() {
        let (length, op) = ((code[at] >> 16) as usize, code[at] & 0xffff);
        let a = &code[at + 1..at + length];
        match op {
            5 => {
                names.insert(a[0], text(&a[1..]));
            }
            6 => {
                member_names.insert((a[0], a[1]), text(&a[2..]));
            }
            26 => samplers.push(a[0]),
            30 => structs.push(a[0]),
            32 => {
                pointers.insert(a[0], a[2]);
            }
            59 => variables.push((a[0], a[1], a[2])),
            71 if a[1] == 33 => {
                bindings.insert(a[0], a[2]);
            }
            71 if a[1] == 3 => buffer_blocks.push(a[0]),
            72 if a[2] == 35 => {
                offsets.insert((a[0], a[1]), a[3] as usize);
            }
            _ => {}
        }
        at += length;
    }
    let mut found = Vec::new();
    for (pointer, variable, class) in variables {
        let Some(&binding) = bindings.get(&variable) else { continue };
        let of = pointers[&pointer];
        let kind = match class {
            0 if samplers.contains(&of) => Kind::Sampler,
            0 => Kind::Texture,
            12 => Kind::Storage,
            _ if buffer_blocks.contains(&of) => Kind::Storage,
            _ => Kind::Uniform,
        };
        let mut members = Vec::new();
        if kind == Kind::Uniform && structs.contains(&of) {
            for i in 0.. {
                let Some(offset) = offsets.get(&(of, i)) else { break };
                members.push((member_names[&(of, i)].clone(), *offset));
            }
        }
        let name = names.get(&variable).cloned().unwrap_or_default();
        found.push(Resource { name, binding, members, kind });
    }
    found
}
