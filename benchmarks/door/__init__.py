"""The front door of a service under more requests than it can carry, over devices and engines that compute nothing."""
