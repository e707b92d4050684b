//! Which launch is fastest: workgroup candidates, measured decisions, and the file that keeps them.
