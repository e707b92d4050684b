//! A kernel made ready to run on the device, and the bytes it is kept as.

use std::ffi::CString;
use std::sync::Arc;

use vyre_driver::BackendError;
use vyre_driver::backend::{BoundShape, Pipeline, Reader, Writer};
use vyre_driver::variant::Ptx;
use vyre_foundation::kernel::Kernel;
use vyre_spec::codes;

use crate::api::{Api, CudaError, Handle};
use crate::device::{Device, Failure, Leftover, Uses};
use crate::ptx::{self, Parameters};

/// A kernel's text, of which the driver makes machine code, and what a launch has to know about it.
pub(crate) struct Code {
    pub(crate) shapes: Vec<BoundShape>,
    pub(crate) workgroup_size: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) parameters: Parameters,
    /// Its launches look at a stop word.
    pub(crate) interruptible: bool,
    /// A kernel that somebody else wrote.
    pub(crate) foreign: Option<Ptx>,
    together: bool,
    image: Vec<u8>,
}

/// A compiled kernel, loaded.
pub(crate) struct CudaPipeline {
    pub(crate) device: Arc<Device>,
    pub(crate) code: Code,
    module: Handle,
    pub(crate) functions: Functions,
    pub(crate) uses: Uses,
}

/// The entries of a module.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    /// One workgroup in a block.
    pub(crate) single: Handle,
    /// [`ptx::TOGETHER`] of them, where the kernel gains by it.
    pub(crate) together: Option<Handle>,
}

const KIND: &[u8; 8] = b"vyrecuda";
const MOST_INVOCATIONS: u32 = 1024;
const MOST_SHARED: u32 = 1 << 24;

impl Code {
    pub(crate) fn new(kernel: &Kernel, ptx: &ptx::Ptx, interruptible: bool) -> Code {
        Code {
            shapes: BoundShape::of(&kernel.buffers),
            workgroup_size: kernel.workgroup_size,
            dynamic_shared: ptx.dynamic_shared,
            parameters: ptx.parameters.clone(),
            interruptible,
            foreign: None,
            together: ptx.together,
            image: ptx.text.clone().into_bytes(),
        }
    }

    /// A kernel that somebody else wrote in the place of a program's.
    pub(crate) fn of_variant(kernel: &Kernel, ptx: &Ptx) -> Code {
        Code {
            shapes: BoundShape::of(&kernel.buffers),
            workgroup_size: ptx.block,
            dynamic_shared: ptx.shared,
            // Its own list says what it takes.
            parameters: Parameters { buffers: vec![0; kernel.buffers.len()], others: 0 },
            interruptible: false,
            foreign: Some(ptx.clone()),
            together: false,
            image: ptx.text.clone().into_bytes(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(KIND);
        self.workgroup_size.iter().for_each(|&size| out.word(size));
        out.word(self.dynamic_shared);
        out.word(u32::from(self.together) | u32::from(self.interruptible) << 1);
        BoundShape::write_all(&self.shapes, &mut out);
        self.parameters.write(&mut out);
        out.bytes(&self.image);
        out.finish()
    }

    /// Reads what [`artifact`](Pipeline::artifact) gave for a program with so many buffers.
    pub(crate) fn decode(bytes: &[u8], buffers: usize, interruptible: bool) -> Result<Code, BackendError> {
        let read = || -> Option<Code> {
            let mut input = Reader::new(bytes, KIND)?;
            let workgroup_size = [input.word()?, input.word()?, input.word()?];
            let (dynamic_shared, flags) = (input.word()?, input.word()?);
            let code = Code {
                shapes: BoundShape::read_all(&mut input, buffers)?,
                parameters: Parameters::read(&mut input, buffers)?,
                workgroup_size,
                dynamic_shared,
                interruptible: flags & 2 != 0,
                foreign: None,
                together: flags & 1 != 0,
                image: input.bytes()?.to_vec(),
            };
            let sizes = workgroup_size.iter().all(|size| (1..=MOST_INVOCATIONS).contains(size));
            let fits = sizes && dynamic_shared <= MOST_SHARED && flags < 4 && input.is_empty();
            (fits && code.interruptible == interruptible).then_some(code)
        };
        read().ok_or_else(|| {
            BackendError::with_code(
                &codes::backend::BAD_ARTIFACT,
                "the stored bytes are not a CUDA pipeline of this program and these options",
            )
        })
    }

    fn find(&self, api: &Api, module: Handle) -> Result<Functions, CudaError> {
        let single = match &self.foreign {
            // Who made this has looked for zeros in the name.
            Some(foreign) => api.function(module, &CString::new(foreign.entry.as_str()).unwrap_or_default())?,
            None => api.function(module, ptx::ENTRY_C)?,
        };
        if self.dynamic_shared > 0 {
            api.allow_dynamic_shared(single, self.dynamic_shared)?;
        }
        let together = match self.together {
            true => Some(api.function(module, ptx::ENTRY_TOGETHER_C)?),
            false => None,
        };
        Ok(Functions { single, together })
    }
}

impl CudaPipeline {
    /// Loads machine code into the device's context.
    pub(crate) fn load(device: &Arc<Device>, code: Code) -> Result<CudaPipeline, Failure> {
        let module = device.api.load_module(&code.image)?;
        match code.find(device.api, module) {
            Ok(functions) => {
                Ok(CudaPipeline { device: Arc::clone(device), code, module, functions, uses: Uses::default() })
            }
            Err(error) => {
                device.api.unload_module(module)?;
                Err(error.into())
            }
        }
    }
}

impl Pipeline for CudaPipeline {
    fn workgroup_size(&self) -> [u32; 3] {
        self.code.workgroup_size
    }

    fn artifact(&self) -> Option<Vec<u8>> {
        Some(self.code.encode())
    }
}

impl Drop for CudaPipeline {
    fn drop(&mut self) {
        self.device.park(&self.uses, Leftover::Module(self.module));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> Code {
        Code {
            shapes: Vec::new(),
            workgroup_size: [64, 1, 1],
            dynamic_shared: 0,
            parameters: Parameters::default(),
            interruptible: true,
            foreign: None,
            together: false,
            image: vec![1, 2, 3],
        }
    }

    #[test]
    fn what_is_stored_is_read_again_and_anything_else_is_refused() {
        let bytes = code().encode();
        let again = Code::decode(&bytes, 0, true).expect("it was just stored");
        assert_eq!((again.workgroup_size, again.image), ([64, 1, 1], vec![1, 2, 3]));
        let longer = [bytes.as_slice(), &[0]].concat();
        for (bytes, buffers, interruptible) in
            [(&bytes[..bytes.len() - 1], 0, true), (&longer, 0, true), (&bytes, 1, true), (&bytes, 0, false)]
        {
            let error = Code::decode(bytes, buffers, interruptible).err().expect("it must be refused");
            assert_eq!(error.code(), codes::backend::BAD_ARTIFACT.id);
        }
    }
}
