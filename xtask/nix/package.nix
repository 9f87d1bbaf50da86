# Weir of this checkout, for nixpkgs with Rust 1.95 or newer: `pkgs.callPackage ./xtask/nix/package.nix { }`.
{ lib, rustPlatform }:

rustPlatform.buildRustPackage {
  pname = "weir";
  inherit ((lib.importTOML ../../Cargo.toml).workspace.package) version;
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;

  # The list of what is installed is xtask's.
  buildPhase = ''
    runHook preBuild
    cargo run --offline --locked --package xtask -- install --destdir "$PWD/target/tree" --prefix "$out"
    runHook postBuild
  '';
  installPhase = ''
    runHook preInstall
    target/debug/xtask install --no-build --prefix "$out"
    runHook postInstall
  '';
  # The tests are the gate's: they want programs and rights that a build has not.
  doCheck = false;

  meta = {
    description = "Memory allocator that releases idle memory under pressure";
    license = with lib.licenses; [ mit asl20 ];
    platforms = [ "x86_64-linux" ];
    mainProgram = "weir";
  };
}
