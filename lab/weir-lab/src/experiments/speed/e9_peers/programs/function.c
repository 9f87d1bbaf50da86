struct sNUMBER { int a[SIZE]; double d; char name[NAME]; };
long fNUMBER(struct s0 *p, long x) {
    struct sNUMBER here; memset(&here, 0, sizeof here);
    for (int i = 0; i < SIZE; i++) { here.a[i] = (int)(x * i + NUMBER); here.d += here.a[i] / 3.0; }
    switch (x % 5) { case 0: x += CALL; break; case 1: x ^= here.a[LAST]; break;
        case 2: snprintf(here.name, sizeof here.name, "%ld NUMBER", x); x += here.name[0]; break; default: x *= NUMBER; }
    return x + (long)here.d + p->a[0];
}
