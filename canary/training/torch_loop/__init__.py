"""Records a loop of plain torch inside a command of `canary exec`, without a change to it."""
