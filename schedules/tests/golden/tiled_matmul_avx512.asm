stage 0:
     0  push rbx
     1  push rbp
     2  push r12
     4  push r13
     6  push r14
     8  push r15
     a  add rsp, 0FFFFFFFFFFFFFF98h
     e  mov [rsp+10h], rdx
    13  mov [rsp+18h], rcx
    18  mov rax, [rdi]
    1b  mov [rsp+20h], rax
    20  mov rax, [rdi+8]
    24  mov [rsp+28h], rax
    29  mov rax, [rdi+10h]
    2d  mov [rsp+30h], rax
    32  mov rax, [rdi+18h]
    36  mov [rsp+38h], rax
    3b  mov rax, [rdi+20h]
    3f  mov [rsp+40h], rax
    44  mov rax, [rsp+10h]
    49  mov rcx, 0
    50  cmp rax, rcx
    53  cmovl rax, rcx
    57  mov [rsp], rax
    5b  mov rax, [rsp+18h]
    60  mov rcx, 1
    67  cmp rax, rcx
    6a  cmovg rax, rcx
    6e  mov [rsp+8], rax
    73  jmp 0C0h
    78  mov rax, [rsp]
    7c  xor edx, edx
    7e  mov rcx, 1
    85  div rcx
    88  mov [rsp+50h], rdx
    8d  mov rdi, [rsp+28h]
    92  imul rax, [rsp+50h], 2Ch
    9b  add rdi, rax
    9e  mov rsi, [rsp+40h]
    a3  imul rax, [rsp+50h], 84h
    ac  add rsi, rax
    af  call 201h
    b4  mov rax, [rsp]
    b8  add rax, 1
    bc  mov [rsp], rax
    c0  mov rax, [rsp]
    c4  cmp rax, [rsp+8]
    c9  jl near 78h
    cf  add rsp, 68h
    d3  pop r15
    d5  pop r14
    d7  pop r13
    d9  pop r12
    db  pop rbp
    dc  pop rbx
    dd  vzeroupper
    e0  ret
stage 1:
    e1  push rbx
    e2  push rbp
    e3  push r12
    e5  push r13
    e7  push r14
    e9  push r15
    eb  add rsp, 0FFFFFFFFFFFFFFA0h
    ef  mov [rsp+10h], rdx
    f4  mov [rsp+18h], rcx
    f9  mov rax, [rdi]
    fc  mov [rsp+20h], rax
   101  mov rax, [rdi+8]
   105  mov [rsp+28h], rax
   10a  mov rax, [rdi+10h]
   10e  mov [rsp+30h], rax
   113  mov rax, [rdi+18h]
   117  mov [rsp+38h], rax
   11c  mov rax, [rdi+20h]
   120  mov [rsp+40h], rax
   125  mov rax, [rsp+10h]
   12a  mov rcx, 0
   131  cmp rax, rcx
   134  cmovl rax, rcx
   138  mov [rsp], rax
   13c  mov rax, [rsp+18h]
   141  mov rcx, 1
   148  cmp rax, rcx
   14b  cmovg rax, rcx
   14f  mov [rsp+8], rax
   154  jmp 1E0h
   159  mov rax, [rsp]
   15d  xor edx, edx
   15f  mov rcx, 1
   166  div rcx
   169  mov [rsp+58h], rdx
   16e  xor edx, edx
   170  mov rcx, 1
   177  div rcx
   17a  mov [rsp+50h], rdx
   17f  mov rdi, [rsp+20h]
   184  imul rax, [rsp+58h], 18h
   18d  add rdi, rax
   190  mov rsi, [rsp+40h]
   195  imul rax, [rsp+50h], 84h
   19e  add rsi, rax
   1a1  mov rdx, [rsp+30h]
   1a6  imul rax, [rsp+50h], 2Ch
   1af  add rdx, rax
   1b2  mov rcx, [rsp+38h]
   1b7  imul rax, [rsp+50h], 2Ch
   1c0  add rcx, rax
   1c3  imul rax, [rsp+58h], 58h
   1cc  add rcx, rax
   1cf  call 23Dh
   1d4  mov rax, [rsp]
   1d8  add rax, 1
   1dc  mov [rsp], rax
   1e0  mov rax, [rsp]
   1e4  cmp rax, [rsp+8]
   1e9  jl near 159h
   1ef  add rsp, 60h
   1f3  pop r15
   1f5  pop r14
   1f7  pop r13
   1f9  pop r12
   1fb  pop rbp
   1fc  pop rbx
   1fd  vzeroupper
   200  ret
   201  mov eax, 7FFh
   206  kmovw k1, eax
   20a  mov rdx, 3
   211  vmovups zmm0{k1}{z}, [rdi]
   217  vmovups [rsi]{k1}, zmm0
   21d  add rdi, 2Ch
   221  add rsi, 2Ch
   225  dec rdx
   228  jne near 211h
   22e  add rdi, 0FFFFFFFFFFFFFF7Ch
   235  add rsi, 0FFFFFFFFFFFFFF7Ch
   23c  ret
   23d  mov eax, 7FFh
   242  kmovw k1, eax
   246  vpxord zmm0, zmm0, zmm0
   24c  vpxord zmm1, zmm1, zmm1
   252  mov r8, 3
   259  vmovups zmm2{k1}{z}, [rsi]
   25f  vfmadd231ps zmm0, zmm2, [rdi]{1to16}
   265  vfmadd231ps zmm1, zmm2, [rdi+0Ch]{1to16}
   26c  prefetcht0 [rsi+84h]
   273  add rdi, 4
   277  add rsi, 2Ch
   27b  dec r8
   27e  jne near 259h
   284  add rdi, 0FFFFFFFFFFFFFFF4h
   288  add rsi, 0FFFFFFFFFFFFFF7Ch
   28f  vpxord zmm2, zmm2, zmm2
   295  vmovups zmm3{k1}{z}, [rdx]
   29b  vaddps zmm4, zmm0, zmm3
   2a1  vmaxps zmm4, zmm2, zmm4
   2a7  vmovups [rcx]{k1}, zmm4
   2ad  vaddps zmm3, zmm1, zmm3
   2b3  vmaxps zmm2, zmm2, zmm3
   2b9  vmovups [rcx+2Ch]{k1}, zmm2
   2c3  ret
