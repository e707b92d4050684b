//! Two galaxies pass through each other: every star is drawn to every other one.
//!
//! `cargo run --example nbody -- nbody.png`

use std::error::Error;
use std::f32::consts::TAU;
use std::fs::File;
use std::io::BufWriter;
use std::time::Instant;

const STARS: usize = 4096;
const STEPS: usize = 240;
const WIDTH: usize = 560;
const HEIGHT: usize = 360;

/// As the kernel has it: a position, a mass, a velocity and a word of padding.
type Body = [f32; 8];

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "nbody.png".to_owned());
    let mut bodies = galaxy([-1.6, -0.45, 0.0], [0.34, 0.1, 0.0], 0.35);
    bodies.extend(galaxy([1.6, 0.45, 0.0], [-0.34, -0.1, 0.0], 1.1));

    let engine = vyre::Engine::open()?;
    let gravity = engine.kernel(&vyre::wgsl(include_str!("kernels/nbody.wgsl"))?)?;
    let mut now = engine.array(bodies.as_flattened())?;
    let mut moved = engine.zeros_like(&now)?;
    let mut light = vec![[0.0f32; 3]; WIDTH * HEIGHT];
    let started = Instant::now();
    for step in 0..STEPS {
        // Nothing waits here: the steps run one after another because each needs the one before.
        gravity.value("step", &[0.012f32, 0.004]).bind("bodies", &now).bind("moved", &mut moved).launch()?;
        std::mem::swap(&mut now, &mut moved);
        // The last steps leave a trace.
        if step + 10 >= STEPS {
            expose(&mut light, now.to_vec()?.as_chunks().0);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    develop(&path, &light)?;
    let pairs = (STARS * STARS * STEPS) as f64;
    println!("{STARS} stars, {STEPS} steps in {path}: {:.0} million pulls a second", pairs / seconds / 1e6);
    Ok(())
}

/// A disc of stars around a heavy middle, tilted, each on its circle.
fn galaxy(middle: [f32; 3], drift: [f32; 3], tilt: f32) -> Vec<Body> {
    let mut random = 0x2545_f491_4f6c_dd1du64 ^ u64::from(tilt.to_bits());
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 40) as f32 / (1u64 << 24) as f32
    };
    const HEAVY: f32 = 1.0;
    let mass = 0.25 / STARS as f32;
    let mut bodies = vec![body(middle, HEAVY, drift)];
    for _ in 1..STARS / 2 {
        let radius = 0.12 + 0.95 * next().sqrt();
        let (sin, cos) = (TAU * next()).sin_cos();
        let speed = (HEAVY / radius).sqrt();
        let turn = |x: f32, y: f32| [x, y * tilt.cos(), y * tilt.sin()];
        let (at, to) = (turn(radius * cos, radius * sin), turn(-speed * sin, speed * cos));
        let thick = 0.03 * (next() - 0.5);
        let position = [middle[0] + at[0], middle[1] + at[1], middle[2] + at[2] + thick];
        bodies.push(body(position, mass, [drift[0] + to[0], drift[1] + to[1], drift[2] + to[2]]));
    }
    bodies
}

fn body([x, y, z]: [f32; 3], mass: f32, [u, v, w]: [f32; 3]) -> Body {
    [x, y, z, mass, u, v, w, 0.0]
}

fn expose(light: &mut [[f32; 3]], bodies: &[Body]) {
    const SCALE: f32 = 150.0;
    for (index, body) in bodies.iter().enumerate() {
        let colour = if index < STARS / 2 { [1.0, 0.72, 0.42] } else { [0.45, 0.7, 1.0] };
        let x = WIDTH as f32 / 2.0 + SCALE * body[0];
        let y = HEIGHT as f32 / 2.0 - SCALE * body[1];
        if x >= 0.0 && y >= 0.0 && (x as usize) < WIDTH && (y as usize) < HEIGHT {
            let pixel = &mut light[y as usize * WIDTH + x as usize];
            pixel.iter_mut().zip(colour).for_each(|(pixel, colour)| *pixel += colour);
        }
    }
}

fn develop(path: &str, light: &[[f32; 3]]) -> Result<(), Box<dyn Error>> {
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), WIDTH as u32, HEIGHT as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let tone = |light: &f32| (255.0 * (1.0 - (-0.5 * light).exp())) as u8;
    let pixels: Vec<u8> = light.iter().flatten().map(tone).collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    Ok(writer.finish()?)
}
