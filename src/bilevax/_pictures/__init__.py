"""Pictures that apps and paper share."""
