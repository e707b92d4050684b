//! Pictures: height x width for grey, height x width x channels for colour, 8 or 16 bits a sample.

use std::io::Cursor;

use vyre::DataType;

use super::contents::{Contents, Numbers};
use super::value::Value;

/// What a decoder may take; a picture of 16,384 x 16,384 in four channels.
const MAX_BYTES: usize = 1 << 30;

pub(super) fn decode(bytes: &[u8]) -> Result<Contents, String> {
    let limits = ::png::Limits { bytes: MAX_BYTES };
    let mut decoder = ::png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    // Palettes and fewer than 8 bits become samples; 16 bits stay.
    decoder.set_transformations(::png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(|error| error.to_string())?;
    let size = reader.output_buffer_size().filter(|&size| size <= MAX_BYTES).ok_or("the picture is too large")?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(|error| error.to_string())?;
    pixels.truncate(frame.buffer_size());
    let mut shape = vec![frame.height as usize, frame.width as usize];
    if frame.color_type.samples() > 1 {
        shape.push(frame.color_type.samples());
    }
    let numbers = match frame.bit_depth {
        ::png::BitDepth::Sixteen => {
            let samples = pixels.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            Numbers::Samples(samples, u16::MAX)
        }
        _ => Numbers::Samples(pixels.into_iter().map(u16::from).collect(), u8::MAX.into()),
    };
    Ok(Contents { numbers, shape, names: Vec::new() })
}

/// Height, width and channels of a result.
fn dimensions(value: &Value) -> Result<[usize; 3], String> {
    let members = value.layout.as_ref().filter(|layout| layout.is_struct).map_or(0, |layout| layout.fields.len());
    match (value.shape.as_slice(), members) {
        (&[height, width], 0) => Ok([height, width, 1]),
        (&[height, width, channels @ 1..=4], 0) | (&[height, width], channels @ 1..=4) => Ok([height, width, channels]),
        _ => Err(format!("a picture needs a height and a width, the result has shape {:?}", value.shape)),
    }
}

pub(super) fn encode(value: &Value) -> Result<Vec<u8>, String> {
    let [height, width, channels] = dimensions(value)?;
    let ty = value.number_type().ok_or("a picture is made of numbers of one type")?;
    let words = || (0..value.len()).filter_map(|at| value.number(at)).map(|number| number.real() as u32);
    // A picture in u32 is packed RGBA, the lowest byte red, unless every value is a grey level.
    let packed = ty == DataType::U32 && channels == 1 && words().any(|word| word > 255);
    let mut depth = ::png::BitDepth::Eight;
    let (pixels, channels): (Vec<u8>, usize) = match ty {
        DataType::U32 if packed => (words().flat_map(u32::to_le_bytes).collect(), 4),
        DataType::U8 | DataType::U32 => (words().map(|word| word as u8).collect(), channels),
        DataType::U16 => {
            depth = ::png::BitDepth::Sixteen;
            (words().flat_map(|word| (word as u16).to_be_bytes()).collect(), channels)
        }
        DataType::F32 | DataType::F16 | DataType::BF16 => {
            let levels = (0..value.len()).filter_map(|at| value.number(at)).map(|number| number.real() as f32);
            (levels.map(|level| (level.clamp(0.0, 1.0) * 255.0).round() as u8).collect(), channels)
        }
        other => return Err(format!("a picture is made of u8, u16, u32 or floats of up to 32 bits, not of {other}")),
    };
    let colour = match channels {
        1 => ::png::ColorType::Grayscale,
        2 => ::png::ColorType::GrayscaleAlpha,
        3 => ::png::ColorType::Rgb,
        _ => ::png::ColorType::Rgba,
    };
    let (Ok(width), Ok(height)) = (u32::try_from(width), u32::try_from(height)) else {
        return Err("the picture is too large".to_owned());
    };
    let mut out = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut out, width, height);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    writer.write_image_data(&pixels).map_err(|error| error.to_string())?;
    writer.finish().map_err(|error| error.to_string())?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(contents: Contents) -> (Vec<u16>, u16, Vec<usize>) {
        match contents.numbers {
            Numbers::Samples(samples, top) => (samples, top, contents.shape),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pictures_come_back_as_they_were_written() {
        let array = Value::plain(DataType::U8, vec![2, 3, 3], (0..18).collect());
        assert_eq!(samples(decode(&encode(&array).unwrap()).unwrap()), ((0..18).collect(), 255, vec![2, 3, 3]));
        let grey = Value::plain(DataType::F32, vec![1, 2], [0f32, 1.0].map(f32::to_le_bytes).concat());
        assert_eq!(samples(decode(&encode(&grey).unwrap()).unwrap()), (vec![0, 255], 255, vec![1, 2]));
        assert!(decode(b"\x89PNG nothing").is_err());
    }

    #[test]
    fn sixteen_bits_keep_the_low_byte() {
        let fine = Value::plain(DataType::U16, vec![1, 2], [0x1234u16, 0xfffe].map(u16::to_le_bytes).concat());
        assert_eq!(samples(decode(&encode(&fine).unwrap()).unwrap()), (vec![0x1234, 0xfffe], u16::MAX, vec![1, 2]));
    }
}
