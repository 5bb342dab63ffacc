"""What starts cells: one module per kind, behind `canary.matrix.launcher.Launcher`."""
