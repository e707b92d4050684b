//! `V17xx`: files and arguments given to the command.

codes! {}
