//! Parses the scene files that the tests write: lines of words.

use std::fs;
use std::path::Path;

pub type Matrix = [f32; 16];

/// A mesh renderer with its material's properties by name.
pub struct Object {
    pub shader: String,
    pub keywords: Vec<String>,
    /// Row-major.
    pub model: Matrix,
    pub indices: Vec<u8>,
    /// Compute shader that runs before the object is drawn, and its thread groups.
    pub compute: Option<(String, u32)>,
    /// Floats and integers, as in memory.
    pub numbers: Vec<(String, [u8; 4])>,
    pub buffers: Vec<(String, Vec<u8>)>,
    pub textures: Vec<Texture>,
}

pub struct Texture {
    pub name: String,
    /// Bytes per pixel: 1 for R8 (normalized), 8 for two floats.
    pub pixel: usize,
    pub width: u32,
    pub height: u32,
    pub bytes: Vec<u8>,
}

pub struct Eye {
    pub view: Matrix,
    pub projection: Matrix,
}

pub struct Camera {
    pub width: u32,
    pub height: u32,
    /// Background color, 0 to 1.
    pub background: [f32; 3],
    /// One eye, or two for rendering in a single pass.
    pub eyes: Vec<Eye>,
    /// Index of the eye that a headset renders in this pass, with one eye per pass.
    pub pass: u32,
    /// Renders both eyes with multiview instead of instancing.
    pub multiview: bool,
}

fn numbers<const N: usize>(words: &mut std::str::SplitWhitespace) -> Result<[f32; N], String> {
    let mut m = [0.0; N];
    for v in &mut m {
        *v = words.next().and_then(|w| w.parse().ok()).ok_or("a number is missing")?;
    }
    Ok(m)
}

fn integer(words: &mut std::str::SplitWhitespace) -> Result<u32, String> {
    words.next().and_then(|w| w.parse().ok()).ok_or("a number is missing".into())
}

fn read(folder: &Path, name: Option<&str>) -> Result<Vec<u8>, String> {
    let path = folder.join(name.ok_or("missing file name")?);
    fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// `object SHADER INDICES MODEL KEYWORD…`, followed by its material's properties: `float NAME
/// VALUE`, `int NAME VALUE`, `buffer NAME FILE`, `room NAME BYTES` for a buffer that a compute shader writes,
/// `texture NAME PIXEL WIDTH HEIGHT FILE`, and `compute SHADER GROUPS`.
pub fn objects(path: &Path) -> Result<Vec<Object>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut found: Vec<Object> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let name = words.next().unwrap_or_default().to_owned();
        if kind == "object" {
            let indices = read(folder, words.next())?;
            let model = numbers::<16>(&mut words)?;
            let keywords = words.map(String::from).collect();
            found.push(Object {
                shader: name,
                keywords,
                model,
                indices,
                compute: None,
                numbers: Vec::new(),
                buffers: Vec::new(),
                textures: Vec::new(),
            });
            continue;
        }
        let object = found.last_mut().ok_or("a property before any object")?;
        match kind {
            "float" => object.numbers.push((name, numbers::<1>(&mut words)?[0].to_le_bytes())),
            "int" => object.numbers.push((name, integer(&mut words)?.to_le_bytes())),
            "compute" => object.compute = Some((name, integer(&mut words)?)),
            "room" => object.buffers.push((name, vec![0; integer(&mut words)? as usize])),
            "buffer" => object.buffers.push((name, read(folder, words.next())?)),
            "texture" => {
                let [pixel, width, height] = numbers::<3>(&mut words)?;
                let bytes = read(folder, words.next())?;
                object.textures.push(Texture {
                    name,
                    pixel: pixel as usize,
                    width: width as u32,
                    height: height as u32,
                    bytes,
                });
            }
            _ => return Err(format!("{}: {line}", path.display())),
        }
    }
    Ok(found)
}

/// `size W H`, `background R G B`, for each eye `eye VIEW PROJECTION`, and optionally `pass N` or
/// `multiview`.
pub fn camera(path: &Path) -> Result<Camera, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut camera = Camera { width: 0, height: 0, background: [0.0; 3], eyes: Vec::new(), pass: 0, multiview: false };
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("size") => {
                let [w, h] = numbers::<2>(&mut words)?;
                (camera.width, camera.height) = (w as u32, h as u32);
            }
            Some("background") => camera.background = numbers::<3>(&mut words)?,
            Some("eye") => {
                camera.eyes.push(Eye { view: numbers::<16>(&mut words)?, projection: numbers::<16>(&mut words)? })
            }
            Some("pass") => camera.pass = numbers::<1>(&mut words)?[0] as u32,
            Some("multiview") => camera.multiview = true,
            _ => {}
        }
    }
    if camera.width == 0 || camera.height == 0 || camera.eyes.is_empty() || camera.eyes.len() > 2 {
        return Err(format!("{}: want a size and one or two eyes", path.display()));
    }
    Ok(camera)
}
