package rules

// Version is the version of the verdicts of this package. It increases if the verdict for any file, agent and target
// changes, so that an audit can tell a changed record from a changed program.
const Version = 2
