//! Blurs a picture in two passes, along its rows and along its columns. The picture goes to the device once and comes back once.
//!
//! `cargo run --example blur -- scene.png soft.png 6`

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else { return Err("give a picture and a name".into()) };
    let radius: i32 = args.next().map_or(Ok(6), |radius| radius.parse())?;
    let ([width, height], pixels) = read(&from)?;

    let engine = vyre::Engine::open()?;
    let pass = |entry: &str| -> Result<vyre::Kernel, Box<dyn Error>> {
        let overrides = [("width", width), ("height", height)].map(|(name, n)| (name.to_owned(), n as f64)).into();
        let options = vyre::ImportOptions { entry: Some(entry.to_owned()), overrides, ..Default::default() };
        let program = vyre::import_wgsl(include_str!("blur_passes.wgsl"), &options).map_err(vyre::Error::from)?;
        Ok(engine.kernel(&program)?.set("radius", radius)?)
    };
    let (rows, columns) = (pass("rows")?, pass("columns")?);

    let started = Instant::now();
    let mut picture = engine.from_shape([height, width], &pixels)?;
    let mut between = engine.zeros_like(&picture)?;
    // The second pass runs after the first because it reads what that writes; nothing waits here.
    rows.bind("image", &picture).bind("blurred", &mut between).launch()?;
    columns.bind("image", &between).bind("blurred", &mut picture).launch()?;
    let blurred = picture.to_vec()?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    write(&to, [width, height], &blurred)?;
    println!("{width} x {height} pixels in {to}: {milliseconds:.1} ms with compiling");
    Ok(())
}

/// Width and height, and the pixels from the top row down.
type Picture = ([usize; 2], Vec<[f32; 4]>);

/// The pixels of a picture with eight bits for each of four channels, as numbers from 0 to 1.
fn read(path: &str) -> Result<Picture, Box<dyn Error>> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    let mut bytes = vec![0; reader.output_buffer_size().ok_or("the picture is too large")?];
    let frame = reader.next_frame(&mut bytes)?;
    if (frame.color_type, frame.bit_depth) != (png::ColorType::Rgba, png::BitDepth::Eight) {
        return Err("the picture needs eight bits for each of red, green, blue and opacity".into());
    }
    let pixels = bytes[..frame.buffer_size()].as_chunks().0.iter();
    let pixels = pixels.map(|pixel: &[u8; 4]| pixel.map(|channel| f32::from(channel) / 255.0)).collect();
    Ok(([frame.width as usize, frame.height as usize], pixels))
}

fn write(path: &str, [width, height]: [usize; 2], pixels: &[[f32; 4]]) -> Result<(), Box<dyn Error>> {
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let bytes: Vec<u8> = pixels.iter().flatten().map(|channel| (channel * 255.0).round() as u8).collect();
    encoder.write_header()?.write_image_data(&bytes)?;
    Ok(())
}
