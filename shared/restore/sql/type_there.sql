SELECT to_regtype(%(name)s) IS NOT NULL AS there
