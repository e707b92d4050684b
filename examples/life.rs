//! Conway's Game of Life: a glider gun and an acorn on a torus, as an animated picture.
//!
//! `cargo run --example life -- life.png`

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

const WIDTH: usize = 120;
const HEIGHT: usize = 72;
const FRAMES: u32 = 120;
/// Pixels along the edge of a cell.
const CELL: usize = 4;

const GUN: &str = "
........................O
......................O.O
............OO......OO............OO
...........O...O....OO............OO
OO........O.....O...OO
OO........O...O.OO....O.O
..........O.....O.......O
...........O...O
............OO";
const ACORN: &str = "
.O
...O
OO..OOO";

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "life.png".to_owned());
    let mut cells = vec![0u32; WIDTH * HEIGHT];
    put(&mut cells, GUN, 4, 4);
    put(&mut cells, ACORN, 84, 48);

    let engine = vyre::Engine::open()?;
    let life = engine.kernel(&vyre::wgsl(include_str!("kernels/life.wgsl"))?)?;
    let grid = [WIDTH.div_ceil(8) as u32, HEIGHT.div_ceil(8) as u32, 1];
    let mut now = engine.from_shape([HEIGHT, WIDTH], &cells)?;
    let mut next = engine.zeros_like(&now)?;

    let mut encoder =
        png::Encoder::new(BufWriter::new(File::create(&path)?), (WIDTH * CELL) as u32, (HEIGHT * CELL) as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::One);
    encoder.set_palette([250, 248, 240, 30, 70, 120].as_slice());
    encoder.set_animated(FRAMES, 0)?;
    encoder.set_frame_delay(1, 15)?;
    let mut writer = encoder.write_header()?;
    for _ in 0..FRAMES {
        // The next generation is on its way while this one is drawn; both stay where the work is.
        let world = [WIDTH as i32, HEIGHT as i32];
        life.value("world", &world).bind("cells", &now).bind("next", &mut next).grid(grid).launch()?;
        writer.write_image_data(&frame(&now.to_vec()?))?;
        std::mem::swap(&mut now, &mut next);
    }
    writer.finish()?;
    let alive = now.to_vec()?.iter().filter(|cell| **cell != 0).count();
    println!("{FRAMES} generations of {WIDTH} x {HEIGHT} cells in {path}; {alive} cells are alive at the end");
    Ok(())
}

fn put(cells: &mut [u32], pattern: &str, left: usize, top: usize) {
    for (y, line) in pattern.trim_start().lines().enumerate() {
        for (x, _) in line.chars().enumerate().filter(|(_, mark)| *mark == 'O') {
            cells[(top + y) * WIDTH + left + x] = 1;
        }
    }
}

/// One bit a pixel, rows padded to bytes.
fn frame(cells: &[u32]) -> Vec<u8> {
    let row_bytes = (WIDTH * CELL).div_ceil(8);
    let mut pixels = vec![0; row_bytes * HEIGHT * CELL];
    for y in 0..HEIGHT * CELL {
        for x in (0..WIDTH * CELL).filter(|x| cells[y / CELL * WIDTH + x / CELL] != 0) {
            pixels[y * row_bytes + x / 8] |= 0x80 >> (x % 8);
        }
    }
    pixels
}
