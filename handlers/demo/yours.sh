export TALLYSTICK_SOURCE_URL=postgresql://reader@db.example/shop
tallystick kinds draft public.invoice > kinds.toml
export TALLYSTICK_KINDS_FILE=$PWD/kinds.toml
tallystick preview invoice --after 365d
tallystick archive export invoice --until 2024-01-01 --directory ./invoices
tallystick archive verify ./invoices
tallystick archive find ./invoices 4711
