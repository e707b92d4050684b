//! Pictures as pixels: u8 (0 to 255) or f32 (0 to 1), height x width for grey, height x width x channels for colour.

use std::io::Cursor;

use vyre::DataType;

use super::Array;

/// What a decoder may take; a picture of 16,384 x 16,384 in four channels.
const MAX_BYTES: usize = 1 << 30;

pub(super) fn decode(bytes: &[u8], want: &DataType) -> Result<Array, String> {
    let limits = ::png::Limits { bytes: MAX_BYTES };
    let mut decoder = ::png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(::png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|error| error.to_string())?;
    let size = reader.output_buffer_size().filter(|&size| size <= MAX_BYTES).ok_or("the picture is too large")?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(|error| error.to_string())?;
    pixels.truncate(frame.buffer_size());
    let mut shape = vec![frame.height as usize, frame.width as usize];
    if frame.color_type.samples() > 1 {
        shape.push(frame.color_type.samples());
    }
    let (ty, bytes) = match want {
        DataType::F32 => {
            (DataType::F32, pixels.iter().flat_map(|&pixel| (f32::from(pixel) / 255.0).to_le_bytes()).collect())
        }
        DataType::U32 => (DataType::U32, pixels.iter().flat_map(|&pixel| u32::from(pixel).to_le_bytes()).collect()),
        _ => (DataType::U8, pixels),
    };
    Ok(Array { ty, shape, bytes })
}

pub(super) fn encode(array: &Array) -> Result<Vec<u8>, String> {
    let (height, width, channels) = match array.shape[..] {
        [height, width] => (height, width, 1),
        [height, width, channels @ 1..=4] => (height, width, channels),
        _ => return Err(format!("a picture needs a height and a width, the result has shape {:?}", array.shape)),
    };
    // A picture in u32 is packed RGBA, the lowest byte red, unless every value is a grey level.
    let packed = array.ty == DataType::U32
        && array.shape.len() == 2
        && array.bytes.chunks_exact(4).any(|word| word[1] != 0 || word[2] != 0 || word[3] != 0);
    let (pixels, channels): (Vec<u8>, usize) = match &array.ty {
        DataType::U8 => (array.bytes.clone(), channels),
        DataType::U32 if packed => (array.bytes.clone(), 4),
        DataType::U32 => (array.bytes.chunks_exact(4).map(|word| word[0]).collect(), channels),
        DataType::F32 => {
            let level = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let pixels =
                array.bytes.chunks_exact(4).map(|b| (level(b).clamp(0.0, 1.0) * 255.0).round() as u8).collect();
            (pixels, channels)
        }
        other => return Err(format!("a picture is made of u8, u32 or f32, not of {other}")),
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
    encoder.set_depth(::png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    writer.write_image_data(&pixels).map_err(|error| error.to_string())?;
    writer.finish().map_err(|error| error.to_string())?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_come_back_as_they_were_written() {
        let array = Array { ty: DataType::U8, shape: vec![2, 3, 3], bytes: (0..18).collect() };
        assert_eq!(decode(&encode(&array).unwrap(), &DataType::U8), Ok(array));
        let grey = Array { ty: DataType::F32, shape: vec![1, 2], bytes: [0f32, 1.0].map(f32::to_le_bytes).concat() };
        assert_eq!(decode(&encode(&grey).unwrap(), &DataType::F32), Ok(grey));
        assert!(decode(b"\x89PNG nothing", &DataType::U8).is_err());
    }
}
