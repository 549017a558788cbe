"""Group, name, order and judge the topics of W."""
