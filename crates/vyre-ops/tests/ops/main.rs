//! Every op against its plain reference, on every backend that is here. `VYRE_OPS_ON=cpu` takes one of them, `VYRE_OPS_LONG=1` adds lengths
//! around 2²⁰ and 2²⁴.

mod attention;
mod every_op;
mod forms;
mod functions;
mod hostile;
mod huge;
mod matrices;
mod moves;
mod places;
mod reductions;
mod scans;
mod sorting;
mod support;
mod texts;
mod transforms;
